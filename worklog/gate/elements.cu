// The kernels that compare elements of C with f(alpha s A B + bias + residual), behind those of
// every_launch.cu. One element of each row, in a column that is drawn after the launch: behind an
// activation, the sum of a row isn't a product.

__device__ int column_of(u64 columns, int row, int N) {
  return (int)(hashed(columns, row) % (unsigned)N);
}

// The numbers of the activations are those of elements.py.
__device__ double activated(int activation, double sum) {
  const float x = (float)sum;
  if (activation == 1) return sum > 0 ? sum : 0;
  if (activation == 2) return 0.5f * x * (1 + erff(x * 0.70710678118f));
  if (activation == 3) {
    return 0.5f * x * (1 + tanhf(0.79788456080f * (x + 0.044715f * x * x * x)));
  }
  return sum;
}

// Right after the launch: what is written later was not written in time.
__global__ void pick(u64 columns, int rows, int N, const TYPE_C* C, double* picked,
                     unsigned* found) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < 12) found[row] = 0;
  if (row < rows) {
    picked[row] = (double)(float)C[(long long)row * N + column_of(columns, row, N)];
  }
}

// known: whether A and B are those of the key, which they are compared with.
__global__ void compare_elements(u64 key, u64 columns, int known, int products, int M, int N, int K,
                                 const TYPE_A* A, const TYPE_B* B, const double* picked,
                                 float alpha, float scale, const float* bias,
                                 const float* row_bias, const float* residual, int activation,
                                 float limit, float rounding, float least, float limit_of_gelu,
                                 unsigned launch, unsigned* found) {
  const int place = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (place >= products * M) return;
  const int row = place % M, column = column_of(columns, place, N);
  const long long start_a = (long long)(place / M) * M * K;
  const long long start_b = (long long)(place / M) * K * N;
  double product = 0, square = 0;
  unsigned changed = 0;
  for (int k = lane; k < K; k += 32) {
    const long long i = start_a + PLACE_A(row, k), j = start_b + PLACE_B(k, column);
    float a = (float)A[i], b = (float)B[j];
    if (known) {
      const float made_a = (float)element_of_a(key, i), made_b = (float)element_of_b(key, j);
      changed += __float_as_uint(a) != __float_as_uint(made_a);
      changed += __float_as_uint(b) != __float_as_uint(made_b);
      a = made_a;
      b = made_b;
    }
    product += (double)a * b;
    square += (double)a * a * b * b;
  }
  if (changed) atomicAdd(found + 2, changed);
  product = sum_of_warp(product);
  square = sum_of_warp(square);
  if (lane != 0) return;
  const double factor = (double)alpha * scale, gauge = fabs(factor) * sqrt(square);
  double sum = factor * product, size = fabs(sum) + gauge;
  if (bias) {
    sum += bias[column];
    size += fabs(bias[column]);
  }
  if (row_bias) {
    sum += row_bias[row];
    size += fabs(row_bias[row]);
  }
  if (residual) {
    sum += residual[(long long)row * N + column];
    size += fabs(residual[(long long)row * N + column]);
  }
  const double right = activated(activation, sum), unit = UNIT_ROUNDOFF * size;
  const double error = fabs(picked[place] - right);
  double tolerance = limit * UNIT_ROUNDOFF * gauge + rounding * size + least;
  if (activation > 1) {  // whose slope is 1.13 at most
    tolerance = 1.2 * tolerance + limit_of_gelu * fmax(fabs(right), 1.0);
  }
  atomicAdd((double*)(found + 6), error / unit * (error / unit));
  atomicAdd(found + 3, 1u);
  const double share = error / tolerance;
  atomicMax(found, share <= 3e38 ? __float_as_uint((float)share) : 0x7f800000u);
  if (!(share <= 1)) {
    atomicAdd(found + 1, 1u);
    atomicMax(found + 4, 0xffffffffu - launch);
  }
}
