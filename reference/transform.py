"""Transform."""
