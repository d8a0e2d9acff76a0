// What clang doesn't know of CUDA without NVIDIA's headers. A source that uses more of them isn't
// compiled: worklog/kernel/clang.py reports clang's message.
#pragma once
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __managed__ __attribute__((managed))
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __cluster_dims__(...) __attribute__((cluster_dims(__VA_ARGS__)))
#define __grid_constant__ __attribute__((grid_constant))
// Without lines of its own: what is inlined has the line of its caller.
#define DEVICE static __device__ __forceinline__ __attribute__((nodebug))

using size_t = decltype(sizeof(0));
using ptrdiff_t = long;
#define NULL __null

#ifdef WORKLOG_WIDTHS
// A member of each vector type that checks copies of the vector: both ends must lie inside their
// array, as far as the compiler knows it. Empty, so a vector's size stays as it is.
template <class Vector>
class __worklog_width {
#define CHECKS __attribute__((device, always_inline, nodebug)) constexpr
  CHECKS static void check(const void *vector) {
    if (__builtin_dynamic_object_size(vector, 0) < sizeof(Vector)) asm volatile("trap;");
  }

 public:
  constexpr __worklog_width() = default;
  CHECKS __worklog_width(const __worklog_width &from) {
    if (!__builtin_is_constant_evaluated()) check(&from);
  }
  CHECKS __worklog_width &operator=(const __worklog_width &from) {
    if (!__builtin_is_constant_evaluated()) {
      check(&from);
      check(this);
    }
    return *this;
  }
#undef CHECKS
};
#define CHECKED(VECTOR) [[no_unique_address]] __worklog_width<VECTOR> __width;
#else
#define CHECKED(VECTOR)
#endif

// Vectors: VECTORS(float, float, 4, 8, 16) is float1 to float4 with the alignment of each.
#define VECTORS(T, NAME, A2, A4)                                                                 \
  struct NAME##1 { T x; };                                                                       \
  struct __align__(A2) NAME##2 { T x, y; CHECKED(NAME##2) };                                     \
  struct NAME##3 { T x, y, z; CHECKED(NAME##3) };                                                \
  struct __align__(A4) NAME##4 { T x, y, z, w; CHECKED(NAME##4) };                               \
  DEVICE NAME##1 make_##NAME##1(T x) { return {x}; }                                             \
  DEVICE NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }                                     \
  DEVICE NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }                             \
  DEVICE NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTORS(char, char, 2, 4)
VECTORS(unsigned char, uchar, 2, 4)
VECTORS(short, short, 4, 8)
VECTORS(unsigned short, ushort, 4, 8)
VECTORS(int, int, 8, 16)
VECTORS(unsigned, uint, 8, 16)
VECTORS(long, long, 16, 16)
VECTORS(unsigned long, ulong, 16, 16)
VECTORS(long long, longlong, 16, 16)
VECTORS(unsigned long long, ulonglong, 16, 16)
VECTORS(float, float, 8, 16)
VECTORS(double, double, 16, 16)
#undef VECTORS
#undef CHECKED

struct dim3 {
  unsigned x, y, z;
  __host__ __device__ constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1)
      : x(x), y(y), z(z) {}
  __host__ __device__ constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  __host__ __device__ constexpr operator uint3() const { return {x, y, z}; }
};

// threadIdx.x and the like are read from the special registers.
#define INDEX(NAME, T, REGISTER)                                                                 \
  struct __index_##NAME {                                                                        \
    __declspec(property(get = get_x)) unsigned x;                                                \
    __declspec(property(get = get_y)) unsigned y;                                                \
    __declspec(property(get = get_z)) unsigned z;                                                \
    DEVICE unsigned get_x() { return __nvvm_read_ptx_sreg_##REGISTER##_x(); }                    \
    DEVICE unsigned get_y() { return __nvvm_read_ptx_sreg_##REGISTER##_y(); }                    \
    DEVICE unsigned get_z() { return __nvvm_read_ptx_sreg_##REGISTER##_z(); }                    \
    __device__ __forceinline__ operator T() const { return {get_x(), get_y(), get_z()}; }        \
  };                                                                                             \
  extern const __device__ __attribute__((weak)) __index_##NAME NAME;
INDEX(threadIdx, uint3, tid)
INDEX(blockIdx, uint3, ctaid)
INDEX(blockDim, dim3, ntid)
INDEX(gridDim, dim3, nctaid)
#undef INDEX
#define warpSize 32

// Types of host code, which is run on the emulator to read its launches.
enum cudaError { cudaSuccess };
using cudaError_t = cudaError;
using cudaStream_t = struct CUstream_st *;
using cudaEvent_t = struct CUevent_st *;
struct cudaLaunchAttribute;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute *attrs;
  unsigned numAttrs;
};

// Synchronisation. clang knows __syncthreads itself.
#define ORDER(NAME, PTX) DEVICE void NAME() { asm volatile(PTX ";" ::: "memory"); }
ORDER(__threadfence, "fence.acq_rel.gpu")
ORDER(__threadfence_block, "fence.acq_rel.cta")
ORDER(__threadfence_system, "fence.acq_rel.sys")
#undef ORDER
DEVICE void __syncwarp(unsigned mask = ~0u) {
  asm volatile("bar.warp.sync %0;" ::"r"(mask) : "memory");
}
#define SYNC_RESULT(NAME, REDUCE)                                                                \
  DEVICE int NAME(int predicate) {                                                               \
    int out;                                                                                     \
    asm volatile("{ .reg .pred p, q; setp.ne.b32 p, %1, 0; " REDUCE " }"                         \
                 : "=r"(out) : "r"(predicate) : "memory");                                       \
    return out;                                                                                  \
  }
SYNC_RESULT(__syncthreads_and, "bar.red.and.pred q, 0, p; selp.b32 %0, 1, 0, q;")
SYNC_RESULT(__syncthreads_or, "bar.red.or.pred q, 0, p; selp.b32 %0, 1, 0, q;")
SYNC_RESULT(__syncthreads_count, "bar.red.popc.u32 %0, 0, p;")
#undef SYNC_RESULT

// The bits of a value, and the instructions of one operand or two or three of one type.
#define BITS(NAME, TO, FROM) DEVICE TO NAME(FROM x) { return __builtin_bit_cast(TO, x); }
BITS(__float_as_int, int, float)
BITS(__float_as_uint, unsigned, float)
BITS(__int_as_float, float, int)
BITS(__uint_as_float, float, unsigned)
#undef BITS
#define PTX1(NAME, T, C, PTX)                                                                    \
  DEVICE T NAME(T a) { T out; asm(PTX " %0, %1;" : "=" C(out) : C(a)); return out; }
#define PTX2(NAME, T, C, PTX)                                                                    \
  DEVICE T NAME(T a, T b) {                                                                      \
    T out; asm(PTX " %0, %1, %2;" : "=" C(out) : C(a), C(b)); return out;                        \
  }
PTX1(__saturatef, float, "f", "cvt.sat.f32.f32")
PTX1(__frcp_rn, float, "f", "rcp.rn.f32")
PTX1(__fsqrt_rn, float, "f", "sqrt.rn.f32")
PTX1(rsqrtf, float, "f", "rsqrt.approx.f32")
PTX2(__fadd_rn, float, "f", "add.rn.f32")
PTX2(__fsub_rn, float, "f", "sub.rn.f32")
PTX2(__fmul_rn, float, "f", "mul.rn.f32")
PTX2(__fdiv_rn, float, "f", "div.rn.f32")
PTX2(__fdividef, float, "f", "div.approx.f32")
PTX2(__umulhi, unsigned, "r", "mul.hi.u32")
PTX2(__mulhi, int, "r", "mul.hi.s32")
PTX2(__dadd_rn, double, "d", "add.rn.f64")
PTX2(__dmul_rn, double, "d", "mul.rn.f64")
#undef PTX1
#undef PTX2
// Conversions with each rounding: of float to an integer, and of an integer to float.
#define CONVERSION(NAME, TO, OUT, FROM, IN, PTX)                                                 \
  DEVICE TO NAME(FROM a) { TO out; asm("cvt." PTX " %0, %1;" : "=" OUT(out) : IN(a)); return out; }
#define CONVERSIONS(ROUNDING, PTX)                                                               \
  CONVERSION(__float2int_##ROUNDING, int, "r", float, "f", PTX "i.s32.f32")                      \
  CONVERSION(__float2uint_##ROUNDING, unsigned, "r", float, "f", PTX "i.u32.f32")                \
  CONVERSION(__int2float_##ROUNDING, float, "f", int, "r", PTX ".f32.s32")                       \
  CONVERSION(__uint2float_##ROUNDING, float, "f", unsigned, "r", PTX ".f32.u32")
CONVERSIONS(rn, "rn")
CONVERSIONS(rz, "rz")
CONVERSIONS(rd, "rm")
CONVERSIONS(ru, "rp")
#undef CONVERSIONS
#undef CONVERSION
DEVICE float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE float fabsf(float a) { return __builtin_fabsf(a); }
DEVICE float sqrtf(float a) { return __builtin_sqrtf(a); }
DEVICE float fminf(float a, float b) { return __builtin_fminf(a, b); }
DEVICE float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE float floorf(float a) { return __builtin_floorf(a); }
DEVICE float ceilf(float a) { return __builtin_ceilf(a); }
DEVICE float truncf(float a) { return __builtin_truncf(a); }
DEVICE float rintf(float a) { return __builtin_rintf(a); }
DEVICE float copysignf(float a, float b) { return __builtin_copysignf(a, b); }
DEVICE double ceil(double a) { return __builtin_ceil(a); }
DEVICE float ceil(float a) { return __builtin_ceilf(a); }
DEVICE double floor(double a) { return __builtin_floor(a); }
DEVICE float floor(float a) { return __builtin_floorf(a); }
DEVICE double trunc(double a) { return __builtin_trunc(a); }
DEVICE double round(double a) { return __builtin_round(a); }
DEVICE double rint(double a) { return __builtin_rint(a); }
DEVICE double fmin(double a, double b) { return __builtin_fmin(a, b); }
DEVICE double fmax(double a, double b) { return __builtin_fmax(a, b); }
DEVICE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
DEVICE double fabs(double a) { return __builtin_fabs(a); }
DEVICE float sqrt(float a) { return __builtin_sqrtf(a); }
#define IS(NAME)                                                                                 \
  DEVICE bool NAME(float a) { return __builtin_##NAME(a); }                                      \
  DEVICE bool NAME(double a) { return __builtin_##NAME(a); }
IS(isnan)
IS(isinf)
IS(isfinite)
IS(signbit)
#undef IS
DEVICE double sqrt(double a) { return __builtin_sqrt(a); }
#define FUNNEL(NAME, PTX)                                                                        \
  DEVICE unsigned NAME(unsigned low, unsigned high, unsigned shift) {                            \
    unsigned out;                                                                                \
    asm("shf." PTX ".b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(shift));        \
    return out;                                                                                  \
  }
FUNNEL(__funnelshift_l, "l.wrap")
FUNNEL(__funnelshift_r, "r.wrap")
FUNNEL(__funnelshift_lc, "l.clamp")
FUNNEL(__funnelshift_rc, "r.clamp")
#undef FUNNEL
// Sums of four products of bytes; VECTOR is their type, or the word that holds them.
#define DOT(T, VECTOR, PTX)                                                                      \
  DEVICE T __dp4a(VECTOR a, VECTOR b, T sum) {                                                   \
    T out, word_a, word_b;                                                                       \
    __builtin_memcpy(&word_a, &a, 4);                                                            \
    __builtin_memcpy(&word_b, &b, 4);                                                            \
    asm("dp4a." PTX " %0, %1, %2, %3;" : "=r"(out) : "r"(word_a), "r"(word_b), "r"(sum));        \
    return out;                                                                                  \
  }
DOT(int, int, "s32.s32")
DOT(int, char4, "s32.s32")
DOT(unsigned, unsigned, "u32.u32")
DOT(unsigned, uchar4, "u32.u32")
#undef DOT
extern __device__ double pow(double, double);  // the host header names it; a call is an error
// Exact for powers of two, as in the size of a grid.
DEVICE double log2(double a) {
  const long long bits = __builtin_bit_cast(long long, a);
  int exponent = (int)(bits >> 52) - 1023;
  double rest = __builtin_bit_cast(double, bits << 12 >> 12 | 1023LL << 52), out = exponent;
  for (double bit = 0.5; bit > 1e-16; bit *= 0.5) {
    rest *= rest;
    if (rest >= 2) rest *= 0.5, out += bit;
  }
  return out;
}
DEVICE int abs(int a) { return __builtin_abs(a); }
DEVICE int __popc(unsigned a) { return __builtin_popcount(a); }
DEVICE int __clz(int a) { return a ? __builtin_clz(a) : 32; }
DEVICE int __ffs(int a) { return __builtin_ffs(a); }
// Of two types, as with NVRTC; floats by the rules for NaN.
template <class S, class T> DEVICE auto min(S a, T b) { return b < a ? b + a * 0 : a + b * 0; }
template <class S, class T> DEVICE auto max(S a, T b) { return a < b ? b + a * 0 : a + b * 0; }
DEVICE float min(float a, float b) { return __builtin_fminf(a, b); }
DEVICE float max(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE double min(double a, double b) { return __builtin_fmin(a, b); }
DEVICE double max(double a, double b) { return __builtin_fmax(a, b); }

// Exchange between the lanes of a warp, of values of 32 or 64 bits.
#define SHUFFLE(NAME, PTX, LIMIT)                                                                \
  template <class T>                                                                             \
  DEVICE T NAME(unsigned mask, T value, int lane, int width = 32) {                              \
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle of 32 or 64 bits");               \
    if constexpr (sizeof(T) == 8) {                                                              \
      auto bits = __builtin_bit_cast(unsigned long long, value);                                 \
      unsigned long long low = NAME(mask, (unsigned)bits, lane, width);                          \
      unsigned long long high = NAME(mask, (unsigned)(bits >> 32), lane, width);                 \
      return __builtin_bit_cast(T, high << 32 | low);                                            \
    } else {                                                                                     \
      unsigned out, in = __builtin_bit_cast(unsigned, value), limits = (32 - width) << 8 | LIMIT; \
      asm volatile("shfl.sync." PTX ".b32 %0, %1, %2, %3, %4;"                                   \
                   : "=r"(out) : "r"(in), "r"(lane), "r"(limits), "r"(mask));                    \
      return __builtin_bit_cast(T, out);                                                         \
    }                                                                                            \
  }
SHUFFLE(__shfl_sync, "idx", 31)
SHUFFLE(__shfl_xor_sync, "bfly", 31)
SHUFFLE(__shfl_down_sync, "down", 31)
SHUFFLE(__shfl_up_sync, "up", 0)
#undef SHUFFLE
DEVICE unsigned __activemask() {
  unsigned out;
  asm volatile("activemask.b32 %0;" : "=r"(out));
  return out;
}
#define VOTE(NAME, T, PTX)                                                                       \
  DEVICE T NAME(unsigned mask, int predicate) {                                                  \
    unsigned out;                                                                                \
    asm volatile("{ .reg .pred p, q; setp.ne.b32 p, %1, 0; " PTX " }"                            \
                 : "=r"(out) : "r"(predicate), "r"(mask));                                       \
    return out;                                                                                  \
  }
VOTE(__ballot_sync, unsigned, "vote.sync.ballot.b32 %0, p, %2;")
VOTE(__any_sync, int, "vote.sync.any.pred q, p, %2; selp.b32 %0, 1, 0, q;")
VOTE(__all_sync, int, "vote.sync.all.pred q, p, %2; selp.b32 %0, 1, 0, q;")
#undef VOTE
#define REDUCE(NAME, T, PTX)                                                                     \
  DEVICE T NAME(unsigned mask, T value) {                                                        \
    T out;                                                                                       \
    asm volatile(PTX " %0, %1, %2;" : "=r"(out) : "r"(value), "r"(mask));          \
    return out;                                                                                  \
  }
REDUCE(__reduce_add_sync, int, "redux.sync.add.s32")
REDUCE(__reduce_add_sync, unsigned, "redux.sync.add.u32")
REDUCE(__reduce_min_sync, int, "redux.sync.min.s32")
REDUCE(__reduce_min_sync, unsigned, "redux.sync.min.u32")
REDUCE(__reduce_max_sync, int, "redux.sync.max.s32")
REDUCE(__reduce_max_sync, unsigned, "redux.sync.max.u32")
REDUCE(__match_any_sync, unsigned, "match.any.sync.b32")
REDUCE(__match_any_sync, int, "match.any.sync.b32")
#undef REDUCE

// Memory.
#define ATOMIC(NAME, T, C, PTX)                                                                  \
  DEVICE T NAME(T *p, T value) {                                                                 \
    T out;                                                                                       \
    asm volatile("atom." PTX " %0, [%1], %2;" : "=" C(out) : "l"(p), C(value) : "memory");       \
    return out;                                                                                  \
  }
ATOMIC(atomicAdd, int, "r", "add.s32")
ATOMIC(atomicAdd, unsigned, "r", "add.u32")
ATOMIC(atomicAdd, unsigned long long, "l", "add.u64")
ATOMIC(atomicAdd, float, "f", "add.f32")
ATOMIC(atomicAdd, double, "d", "add.f64")
ATOMIC(atomicExch, int, "r", "exch.b32")
ATOMIC(atomicExch, unsigned, "r", "exch.b32")
ATOMIC(atomicExch, float, "f", "exch.b32")
ATOMIC(atomicMax, int, "r", "max.s32")
ATOMIC(atomicMax, unsigned, "r", "max.u32")
ATOMIC(atomicMin, int, "r", "min.s32")
ATOMIC(atomicMin, unsigned, "r", "min.u32")
ATOMIC(atomicAnd, int, "r", "and.b32")
ATOMIC(atomicAnd, unsigned, "r", "and.b32")
ATOMIC(atomicOr, int, "r", "or.b32")
ATOMIC(atomicOr, unsigned, "r", "or.b32")
ATOMIC(atomicXor, unsigned, "r", "xor.b32")
ATOMIC(atomicInc, unsigned, "r", "inc.u32")
ATOMIC(atomicDec, unsigned, "r", "dec.u32")
#undef ATOMIC
#define SWAP(T, C, PTX)                                                                          \
  DEVICE T atomicCAS(T *p, T expected, T value) {                                                \
    T out;                                                                                       \
    asm volatile("atom.cas." PTX " %0, [%1], %2, %3;"                                            \
                 : "=" C(out) : "l"(p), C(expected), C(value) : "memory");                       \
    return out;                                                                                  \
  }
SWAP(int, "r", "b32")
SWAP(unsigned, "r", "b32")
SWAP(unsigned long long, "l", "b64")
#undef SWAP
template <class T> DEVICE T atomicSub(T *p, T value) { return atomicAdd(p, T(-value)); }
DEVICE size_t __cvta_generic_to_shared(const void *p) {
  return (size_t)(__attribute__((address_space(3))) const void *)p;
}
// A hint about caches doesn't change what is loaded or stored.
#define HINT(SUFFIX)                                                                             \
  template <class T> DEVICE T __ld##SUFFIX(const T *p) { return *p; }                            \
  template <class T> DEVICE void __st##SUFFIX(T *p, T value) { *p = value; }
HINT(cs) HINT(cg) HINT(ca) HINT(cv) HINT(wb) HINT(wt)
#undef HINT
template <class T> DEVICE T __ldg(const T *p) { return *p; }

DEVICE void *memcpy(void *to, const void *from, size_t size) {
  return __builtin_memcpy(to, from, size);
}
DEVICE void *memset(void *to, int value, size_t size) { return __builtin_memset(to, value, size); }

// Messages, ends and clocks.
extern "C" __device__ int printf(const char *, ...);
extern "C" __device__ __attribute__((noreturn)) void __assertfail(
    const char *text, const char *file, unsigned line, const char *function, size_t char_size);
#ifdef NDEBUG
#define assert(x) ((void)0)
#else
#define assert(x) ((x) ? (void)0 : __assertfail(#x, __FILE__, __LINE__, __func__, 1))
#endif
#ifdef WORKLOG_BOUNDS
DEVICE void __trap() { asm volatile("exit;"); }  // a trap is an access out of bounds
#else
DEVICE void __trap() { __builtin_trap(); }
#endif
DEVICE long long clock64() { return __nvvm_read_ptx_sreg_clock64(); }
DEVICE int clock() { return __nvvm_read_ptx_sreg_clock(); }
DEVICE void __nanosleep(unsigned ns) { asm volatile("nanosleep.u32 %0;" ::"r"(ns) : "memory"); }

#ifdef WORKLOG_BOUNDS
// An array of several dimensions as one of one dimension, for an index behind `zeros` times [0]: a
// loop may walk all rows by it. A pointer to an unknown number of arrays gets no bounds.
// Anything else is what those [0] give.
template <int zeros, class T>
DEVICE auto *__worklog_first(T *pointer) {
  if constexpr (zeros == 0) {
    return pointer;
  } else {
    return __worklog_first<zeros - 1>(*pointer);
  }
}
template <int zeros, class T>
DEVICE decltype(auto) __worklog_flat(T &&array) {
  if constexpr (zeros == 0) {
    return static_cast<T &&>(array);
  } else if constexpr (__is_pointer(__remove_cvref(T))) {
    return __worklog_first<zeros>(array);
  } else {
    return __worklog_flat<zeros - 1>(array[0]);
  }
}
template <int zeros, class T, size_t rows, size_t columns>
DEVICE decltype(auto) __worklog_flat(T (&array)[rows][columns]) {
  if constexpr (zeros == 0) {
    return static_cast<T(&)[rows][columns]>(array);
  } else {
    return __worklog_flat<zeros - 1>((T(&)[rows * columns])array);
  }
}

// An access out of the bounds of an array, as -fsanitize=array-bounds reports it. The printed line
// is read by worklog/kernel/clang.py.
struct __worklog_array_type {
  unsigned short kind, info;
  char name[];
};
struct __worklog_index_type {
  unsigned short kind;
  unsigned short info;  // the binary logarithm of the bits, and 1 if it is signed
};
struct __worklog_place {
  const char *file;
  unsigned line, column;
  const __worklog_array_type *array;
  const __worklog_index_type *index;
};
extern "C" __device__ __attribute__((noinline)) void __ubsan_handle_out_of_bounds(
    const __worklog_place *place, unsigned long value) {
  const int unused_bits = 64 - (1 << (place->index->info >> 1));
  const long long index = place->index->info & 1 ? (long long)(value << unused_bits) >> unused_bits
                                                 : (long long)value;
  printf("out of bounds: %s:%u: index %lld of %s\n", place->file, place->line, index,
         place->array->name);
  asm volatile("exit;");
}
#endif
#undef DEVICE
