"""Hold the parts of the pytest plugin (``dualdnn.conformance.plugin``), one file per role."""
