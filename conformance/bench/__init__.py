"""Times of the operations beside the vendor's library and the floor of the hardware."""
