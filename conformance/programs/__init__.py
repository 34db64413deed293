"""Run other people's programs on this library, or judge them on the library they were written for."""
