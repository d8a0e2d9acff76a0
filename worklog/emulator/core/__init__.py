"""The emulator's core in C, and the Python that feeds it."""
