"""Local response, divisive and batch normalization."""
