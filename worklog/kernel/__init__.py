"""What computes it: kernels, the ladder, compilation with NVRTC, and resources."""
