"""The descriptors of the backend API (chapter 9): their attributes as data, their life cycle, what finalising checks."""
