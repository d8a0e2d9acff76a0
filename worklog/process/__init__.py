"""The process in which foreign code runs: how it is watched, what it does, and what its answers mean."""
