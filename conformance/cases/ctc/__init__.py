"""Cases of ctc."""
