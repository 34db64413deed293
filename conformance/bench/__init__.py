"""Times the operations beside the vendor's library and beside the floor of the hardware."""
