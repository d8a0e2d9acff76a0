"""What is computed: the GEMM problem, its shape, and the axes that a benchmark varies."""
