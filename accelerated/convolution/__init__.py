"""Forward convolution with every documented algorithm, Im2Col and reordered filters."""
