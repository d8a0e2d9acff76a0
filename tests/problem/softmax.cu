// A solution of softmax in two kernels: the powers of each row, then the division by their sum.
#include <cuda_runtime.h>

constexpr int THREADS = 64;

__global__ void powers(const float* x, float* y, int rows, int columns) {
  __shared__ float partial[THREADS];
  const int t = threadIdx.x, first = blockIdx.x * columns;
  float largest = -INFINITY;
  for (int i = t; i < columns; i += THREADS) largest = fmaxf(largest, x[first + i]);
  partial[t] = largest;
  __syncthreads();
  for (int half = THREADS / 2; half > 0; half /= 2) {
    if (t < half) partial[t] = fmaxf(partial[t], partial[t + half]);
    __syncthreads();
  }
  for (int i = t; i < columns; i += THREADS) y[first + i] = expf(x[first + i] - partial[0]);
}

__global__ void divide(float* y, int columns, int last) {
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += 32) sum += y[blockIdx.x * columns + i];
  for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffff, sum, half);
  for (int i = threadIdx.x; i < last; i += 32) y[blockIdx.x * columns + i] /= sum;
}

extern "C" void solution(const float* input, float* output, int rows, int columns) {
  const int blocks = (rows + 1 - 1) / 1;  // a block per row
  dim3 grid(blocks), block(THREADS, 1);
  powers<<<grid, block>>>(input, output, rows, columns);
  divide<<<grid.x, min(32, THREADS)>>>(output, columns, columns);
  cudaDeviceSynchronize();
}
