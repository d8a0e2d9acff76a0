"""Find the fastest tile of a template: sweeps, search strategies, and several GPUs or machines."""
