// What device code uses of C++'s standard library, which NVRTC doesn't have: from libcu++.
#pragma once
#include <cuda/std/limits>
#include <cuda/std/type_traits>
#include <cuda/std/utility>

namespace std {
using namespace cuda::std;
using ::abs;
using ::acos;
using ::asin;
using ::atan;
using ::atan2;
using ::cbrt;
using ::ceil;
using ::copysign;
using ::cos;
using ::cosh;
using ::erf;
using ::exp;
using ::exp2;
using ::expm1;
using ::fabs;
using ::floor;
using ::fma;
using ::fmax;
using ::fmin;
using ::fmod;
using ::hypot;
using ::isfinite;
using ::isinf;
using ::isnan;
using ::log;
using ::log10;
using ::log1p;
using ::log2;
using ::lround;
using ::pow;
using ::rint;
using ::round;
using ::signbit;
using ::sin;
using ::sinh;
using ::sqrt;
using ::tan;
using ::tanh;
using ::trunc;

template <typename T>
__host__ __device__ constexpr const T& max(const T& a, const T& b) {
    return a < b ? b : a;
}

template <typename T>
__host__ __device__ constexpr const T& min(const T& a, const T& b) {
    return b < a ? b : a;
}
}  // namespace std
