"""Makes calls again that were saved, recorded or logged (``dualdnn replay``)."""
