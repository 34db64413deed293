"""Cases of the softmax family."""
