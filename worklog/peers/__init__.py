"""Other harnesses: their times of the same work, and what their checks accept."""
