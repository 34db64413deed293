"""Hold the document's tables of supported configurations as data."""
