"""Cases of the reduce tensor family."""
