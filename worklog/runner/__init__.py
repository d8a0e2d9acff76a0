"""Do it: tasks, sessions, and the path from a kernel through the gate and the harness to a run."""
