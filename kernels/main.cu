// Compile one rung with nvcc alone, check its result, and print its time and TFLOP/s.
// Run:     nvcc -arch=native -DRUNG=5 main.cu && ./a.out 4096     or: ./a.out M N K
//
// The check is exact: A and B hold integers from -8 to 8, so each element of C is an integer that
// FP32 holds without rounding (up to K = 262144). C is filled with NaN before the launch. The time
// is the median of 21 launches after a warm-up, with other data in L2 before each launch. Beyond
// that, `worklog run` removes the event overhead, watches the clock, alternates with cuBLAS and
// gives a 95 % interval.

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "rungs.cuh"

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  exit(1);
}

__global__ void fill(float* x, size_t n, unsigned seed) {  // integers from -8 to 8
  const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  unsigned h = ((unsigned)i ^ seed) * 2654435761u;
  h = (h ^ h >> 15) * 2246822519u;
  if (i < n) x[i] = (float)((h ^ h >> 13) % 17) - 8.0f;
}

__global__ void count_correct(int M, int N, int K, const float* A, const float* B, const float* C,
                              unsigned long long* correct) {
  const int row = blockIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (col >= N) return;
  int sum = 0;
  for (int k = 0; k < K; ++k) sum += (int)A[(size_t)row * K + k] * (int)B[(size_t)k * N + col];
  if (C[(size_t)row * N + col] == (float)sum) atomicAdd(correct, 1ull);  // NaN is not equal
}

int main(int argc, char** argv) {
  const int M = argc > 1 ? atoi(argv[1]) : 4096;
  const int N = argc > 3 ? atoi(argv[2]) : M, K = argc > 3 ? atoi(argv[3]) : M;
  const bool whole_tiles = M % rung.bm == 0 && N % rung.bn == 0 && K % rung.bk == 0;
  if (std::min({M, N, K}) < 1 || M > 65535 || (RUNG > 2 && !whole_tiles)) {
    fprintf(stderr, "rung %d needs M, N, K in multiples of %d, %d, %d, and M <= 65535\n", RUNG,
            RUNG > 2 ? rung.bm : 1, RUNG > 2 ? rung.bn : 1, RUNG > 2 ? rung.bk : 1);
    return 2;
  }

  const size_t a = (size_t)M * K, b = (size_t)K * N, c = (size_t)M * N;
  const size_t flush_bytes = 256 << 20;  // more than any GPU's L2
  float *A, *B, *C;
  void* flush;
  unsigned long long correct = 0, *d_correct;
  check(cudaMalloc(&A, a * sizeof(float)));
  check(cudaMalloc(&B, b * sizeof(float)));
  check(cudaMalloc(&C, c * sizeof(float)));
  check(cudaMalloc(&flush, flush_bytes));
  check(cudaMalloc(&d_correct, sizeof correct));
  check(cudaMemset(d_correct, 0, sizeof correct));
  fill<<<(a + 255) / 256, 256>>>(A, a, 0x13579bdf);
  fill<<<(b + 255) / 256, 256>>>(B, b, 0xfdb97531);
  check(cudaMemset(C, 0xff, c * sizeof(float)));  // every element is NaN

  const dim3 grid((N + rung.bn - 1) / rung.bn, (M + rung.bm - 1) / rung.bm);
  const int shared = rung.dynamic_shared_bytes;
  check(cudaFuncSetAttribute(rung.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  auto launch = [&] { rung.kernel<<<grid, rung.threads, shared>>>(M, N, K, 1.0f, A, B, 0.0f, C); };
  launch();
  count_correct<<<dim3((N + 255) / 256, M), 256>>>(M, N, K, A, B, C, d_correct);
  check(cudaGetLastError());
  check(cudaMemcpy(&correct, d_correct, sizeof correct, cudaMemcpyDeviceToHost));
  if (correct != c) {
    printf("rung %d at %dx%dx%d: %llu of %zu elements are wrong\n", RUNG, M, N, K, c - correct, c);
    return 1;
  }

  cudaEvent_t start, stop;
  check(cudaEventCreate(&start));
  check(cudaEventCreate(&stop));
  float ms[21];
  for (int i = -10; i < 21; ++i) {  // the first ten warm up
    check(cudaMemsetAsync(flush, 0, flush_bytes));
    check(cudaEventRecord(start));
    launch();
    check(cudaEventRecord(stop));
    check(cudaEventSynchronize(stop));
    if (i >= 0) check(cudaEventElapsedTime(&ms[i], start, stop));
  }
  std::sort(ms, ms + 21);
  printf("rung %d at %dx%dx%d: correct, %.3f ms, %.2f TFLOP/s (median of 21, clocks as found)\n",
         RUNG, M, N, K, ms[10], 2.0 * M * N * K / ms[10] / 1e9);
}
