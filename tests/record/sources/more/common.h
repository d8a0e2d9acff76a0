#include <stdio.h>
#include <vector>
#define CHECK(call) check((call), __LINE__)
static int launches = 0;
void check(cudaError_t error, int line, float limit = 1.0f) { if (error) printf("%d", line); }
#define BIND(name) void bound_##name(torch::Tensor t) { name(t); }
BIND(check)
template <class T> __device__ T larger(T a, T b) { return std::max(a, b); }
