"""The document's tables of supported configurations, as data."""
