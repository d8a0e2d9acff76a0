// One block per slice along `dim`; its elements are `inner` apart. The sizes are read on the GPU,
// where Tensara's problem puts them; blocks beyond the last slice return.
__global__ void softmax(const float* input, int dim, float* output, const size_t* shape,
                        size_t ndim) {
  __shared__ float parts[128];
  size_t inner = 1, outer = 1;
  for (size_t d = 0; d < ndim; ++d) {
    if (int(d) < dim) outer *= shape[d];
    if (int(d) > dim) inner *= shape[d];
  }
  const size_t size = shape[dim], slices = outer * inner;
  for (size_t slice = blockIdx.x; slice < slices; slice += gridDim.x) {
    const size_t start = slice / inner * size * inner + slice % inner;
    float most = -INFINITY;
    for (size_t i = threadIdx.x; i < size; i += 128) most = fmaxf(most, input[start + i * inner]);
    parts[threadIdx.x] = most;
    __syncthreads();
    for (int i = 0; i < 128; ++i) most = fmaxf(most, parts[i]);
    __syncthreads();
    float sum = 0.0f;
    for (size_t i = threadIdx.x; i < size; i += 128) sum += expf(input[start + i * inner] - most);
    parts[threadIdx.x] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int i = 0; i < 128; ++i) sum += parts[i];
    __syncthreads();
    for (size_t i = threadIdx.x; i < size; i += 128)
      output[start + i * inner] = expf(input[start + i * inner] - most) / sum;
  }
}

extern "C" void solution(const float* input, int dim, float* output, const size_t* shape,
                         size_t ndim) {
  softmax<<<132, 128>>>(input, dim, output, shape, ndim);
}
