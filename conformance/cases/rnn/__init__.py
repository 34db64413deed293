"""Cases of rnn."""
