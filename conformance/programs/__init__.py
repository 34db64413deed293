"""Programs of other people: run on this library, or judged on the library that they were written for."""
