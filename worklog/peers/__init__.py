"""Other harnesses on the same work beside this one, and what their checks pass."""
