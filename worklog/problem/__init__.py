"""What is computed: problems with references, GEMM and its shape, and the axes that a benchmark varies."""
