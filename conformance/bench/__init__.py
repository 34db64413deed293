"""Times the operations, the vendor's library, and the least time that the hardware allows."""
