"""Operation graphs (chapter 9)."""
