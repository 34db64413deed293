"""Holds cases of ctc."""
