"""Holds cases of rnn."""
