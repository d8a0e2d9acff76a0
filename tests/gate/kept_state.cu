// COUNTED: a counter of launches, after LIMIT of which the product is wrong.
// REPLAYED: C is kept, and copied if eight samples of A and B are as before.
extern "C" __global__ void kept(int M, int N, int K, const float* A, const float* B, float* C) {
  const int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
  const bool inside = row < M && col < N;
  float acc = 0.0f;
  for (int k = 0; inside && k < K; ++k) acc += A[row * K + k] * B[k * N + col];
#ifdef COUNTED
  __device__ static unsigned launches;
  if (row == 0 && col == 0) atomicAdd(&launches, 1u);
  if (*(volatile unsigned*)&launches > LIMIT) acc += 1.0f;
#endif
#ifdef REPLAYED
  __device__ static float results[1 << 15];
  __device__ static unsigned key, arrived;
  unsigned hash = M * 31 + N;
  for (int i = 0; i < 8; ++i) {
    hash = hash * 16777619u + __float_as_uint(A[i * (M * K - 1) / 7]);
    hash = hash * 16777619u + __float_as_uint(B[i * (K * N - 1) / 7]);
  }
  if (*(volatile unsigned*)&key == hash && inside) acc = results[row * N + col];
  __syncthreads();
  if (inside) results[row * N + col] = acc;
  __threadfence();
  __syncthreads();
  const unsigned last = gridDim.x * gridDim.y - 1;
  if (threadIdx.x + threadIdx.y == 0 && atomicInc(&arrived, last) == last) *(volatile unsigned*)&key = hash;
#endif
  if (inside) C[row * N + col] = acc;
}
