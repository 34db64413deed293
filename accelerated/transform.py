"""Transform on the device."""
