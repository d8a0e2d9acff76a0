// Each tile of a warp exchanges its own values. As cooperative groups' tiled_partition<size> and
// CUB's WarpReduce<int, size> build their masks.
extern "C" __global__ void k(const int* in, int size, unsigned* out) {
  unsigned t = threadIdx.x, lane = t % 32;
  unsigned mask = (0xffffffffu >> (32 - size)) << (lane / size * size);
  int v = in[t], sum = v, down = v;
  out[t] = __ballot_sync(mask, v & 1);
  out[64 + t] = __any_sync(mask, v > 90) + 2 * __all_sync(mask, v > 9);
  out[64 + t] += 4 * (__match_all_sync(mask, v > 50, &sum) == mask);
  out[128 + t] = __reduce_add_sync(mask, v);
  out[192 + t] = __reduce_min_sync(mask, v - 50) + 50;
  out[256 + t] = __match_any_sync(mask, v % 3);
  sum = v;
  for (int d = size / 2; d; d /= 2) sum += __shfl_xor_sync(mask, sum, d, size);
  for (int d = size / 2; d; d /= 2) {  // CUB's clamp is the last lane of the tile
    int x = __shfl_down_sync(mask, down, d);
    if (lane % size + d < size) down += x;
  }
  out[320 + t] = sum;
  out[384 + t] = __shfl_sync(mask, down, 0, size);
}
