// What device code uses of C++'s standard library, which NVRTC doesn't have: from libcu++.
#pragma once
#include <cuda/std/limits>
#include <cuda/std/type_traits>
#include <cuda/std/utility>

namespace std {
using namespace cuda::std;
using ::abs;
using ::exp;
using ::isfinite;
using ::isinf;
using ::isnan;
using ::log;
using ::pow;
using ::sqrt;

template <typename T>
__host__ __device__ constexpr const T& max(const T& a, const T& b) {
    return a < b ? b : a;
}

template <typename T>
__host__ __device__ constexpr const T& min(const T& a, const T& b) {
    return b < a ? b : a;
}
}  // namespace std
