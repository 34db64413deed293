"""Implement the descriptors of the backend API (chapter 9): attributes as data, life cycle, checks of finalising."""
