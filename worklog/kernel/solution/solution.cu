// PROBLEM: ABOUT
// Check:  worklog check FILE --problem CALLED
// Time:   worklog run FILE --problem CALLED
//
// solution() gets addresses in the GPU's memory, may launch several kernels, and needn't wait for
// them. Its integers, dim3 and launches are read, so that the check runs without a GPU too.
INCLUDES
__global__ void ENTRY(
    DECLARED) {
  // Compute the output here.
}

extern "C" void solution(
    DECLARED) {
  const int threads = 256, blocks = 1;
  ENTRY<<<blocks, threads>>>(PASSED);
}
