#include "tiled.cuh"
void small(float* x) { const int TILE = 32; dim3 grid(1);
  largest<TILE><<<grid, TILE>>>(x, x, 8);
}
void unrelated() { const int TILE = 64; largest<TILE><<<1, TILE>>>(0, 0, 0); }
