/* Instructions that are no operator of C: one lane each, bit for bit as on an H200. */
#ifndef WORKLOG_ARITHMETIC_H
#define WORKLOG_ARITHMETIC_H

#include "state.h"

#include <float.h>

/* Integers and bits. */

/* x, limited to a range. */
static inline __int128 clamp(__int128 x, __int128 low, __int128 high) {
  return x < low ? low : x > high ? high : x;
}

/* A count of bits to shift, of which those beyond 32 count as 32. */
static inline uint32_t limited(uint32_t count) { return count < 32 ? count : 32; }

/* A count of bits to shift, modulo 32. */
static inline uint32_t wrapped(uint32_t count) { return count & 31; }

/* Two words as one number. */
static inline uint64_t joined_words(uint32_t low, uint32_t high) {
  return (uint64_t)high << 32 | low;
}

/* A number whose lowest `count` bits are set. */
static inline uint64_t ones(uint32_t count) {
  return count < 64 ? ((uint64_t)1 << count) - 1 : UINT64_MAX;
}

/* PTX ISA, "bmsk": a mask of `length` bits from a position on. */
static inline uint32_t bmsk(uint32_t position, uint32_t length) {
  return (uint32_t)(ones(length) << position);
}

/* PTX ISA, "bfi": b with the lowest bits of a at a position. */
static inline uint64_t bfi(uint64_t a, uint64_t b, uint32_t position, uint32_t length,
                           uint32_t bits) {
  if (position >= bits)
    return b;
  uint64_t field = ones(length < bits ? length : bits) << position;
  return (a << position & field) | (b & ~field);
}

/* A signed field that reaches beyond the top bit has its sign there. */
static inline uint64_t bfe(uint64_t a, uint32_t position, uint32_t length, uint32_t bits,
                           int is_signed) {
  int64_t x = is_signed ? (int64_t)(a << (64 - bits)) >> (64 - bits) : (int64_t)a;
  uint32_t shift = position < 63 ? position : 63;
  uint64_t field = is_signed ? (uint64_t)(x >> shift) : position < 64 ? a >> position : 0;
  if (!length)
    return 0;
  if (length >= 64)
    return field;
  field &= ones(length);
  return is_signed && field >> (length - 1) ? field | ~ones(length) : field;
}

/* The 64 bits of x in reverse order. */
static inline uint64_t reversed(uint64_t x) {
  x = (x >> 1 & 0x5555555555555555) | (x & 0x5555555555555555) << 1;
  x = (x >> 2 & 0x3333333333333333) | (x & 0x3333333333333333) << 2;
  x = (x >> 4 & 0x0F0F0F0F0F0F0F0F) | (x & 0x0F0F0F0F0F0F0F0F) << 4;
  return __builtin_bswap64(x);
}

/* The number of leading zeros. */
static inline uint32_t leading(uint64_t x, uint32_t bits) {
  return x ? (uint32_t)__builtin_clzll(x) - (64 - bits) : bits;
}

/* PTX ISA, "bfind": the position of the highest set bit, or how far it is from the top. */
static inline uint32_t bfind(uint64_t magnitude, uint32_t bits, int as_shift) {
  if (!magnitude)
    return FULL;
  return as_shift ? leading(magnitude, bits) : bits - 1 - leading(magnitude, bits);
}

/* PTX ISA, "prmt": 4 of the 8 bytes of two words; a choice from 8 on repeats a byte's sign. */
static inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t out = 0;
  for (int k = 0; k < 4; k++) {
    uint32_t choice = selector >> 4 * k & 15,
             byte = (uint32_t)(joined_words(a, b) >> 8 * (choice & 7)) & 255;
    out |= (choice < 8 ? byte : byte < 128 ? 0 : 255) << 8 * k;
  }
  return out;
}

/* PTX ISA, "lop3": a logical operation on three words, by its truth table. */
static inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
  uint32_t out = 0;
  for (int row = 0; row < 8; row++)
    if (table >> row & 1)
      out |= (row & 4 ? a : ~a) & (row & 2 ? b : ~b) & (row & 1 ? c : ~c);
  return out;
}

/* c plus the products of a's numbers of 8 or 16 bits and b's bytes, from byte `first` on. */
static inline uint32_t dot(uint32_t a, uint32_t b, uint32_t c, int bits, int first, int a_signed,
                           int b_signed) {
  for (int k = 0; k < 32 / bits; k++) {
    uint32_t x = a >> bits * k & (uint32_t)ones((uint32_t)bits), y = b >> 8 * (first + k) & 255;
    if (a_signed && x >> (bits - 1))
      x -= 1u << bits;
    if (b_signed && y > 127)
      y -= 256;
    c += x * y;
  }
  return c;
}

/* Floats. */

/* IEEE minimumNumber: the number if the other operand is NaN, also a signalling one; -0 is below
 * +0. */
static inline double least_double(double a, double b) {
  if (a == 0 && b == 0)
    return signbit(a) ? a : b;
  if (isnan(a))
    return b;
  return isnan(b) || a < b ? a : b;
}

/* The same of floats. */
static inline float least_float(float a, float b) {
  if (a == 0 && b == 0)
    return signbit(a) ? a : b;
  if (isnan(a))
    return b;
  return isnan(b) || a < b ? a : b;
}
#define least(a, b) _Generic((a), float: least_float, double: least_double)(a, b)

/* The bits of a double. */
static inline uint64_t bits_of(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* The double with these bits. */
static inline double with_bits(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* The bits of a float. */
static inline uint32_t float_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* The float with these bits. */
static inline float as_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* 2 to the power of an exponent. */
static inline double power(int exponent) { return with_bits((uint64_t)(exponent + 1023) << 52); }

/* x, or a zero of its sign if x is subnormal. */
/* By how many ulps approximations are above the nearest float32, of the launch that runs. */
static int ulps_above;

/* An approximation of a result. PTX ISA allows each of them an error of 1 ulp at least, but states
 * 0, infinity, NaN, and the 1 of ex2 and cos at 0. */
static inline float approximated(double exact) {
  float x = (float)exact;
  if (!ulps_above || !(fabsf(x) < FLT_MAX) || x == 0 || fabsf(x) == 1)
    return x;
  return nextafterf(x, ulps_above > 0 ? INFINITY : -INFINITY);
}

static inline float flush_f32(float x) { return fabsf(x) < FLT_MIN ? copysignf(0, x) : x; }

/* The same of a half. */
static inline double flush_half(double x) { return fabs(x) < 0x1p-14 ? copysign(0, x) : x; }

enum { NEAREST, TOWARDS_ZERO, DOWN_WARD, UP_WARD };

/* x rounded to a format with this many digits of fraction and these limits. ftz: what would be
 * below the least normal number if exponents had no limit is zero. */
static double fit(double x, int digits, int lowest, double most, int mode, int ftz) {
  if (x == 0 || !isfinite(x))
    return x;
  /* A subnormal double is below all of these formats: its exponent needn't be exact. */
  int exponent = (int)(bits_of(x) >> 52 & 0x7FF) - 1023;
  if (ftz && exponent < lowest - 1)
    return copysign(0, x);
  int unit = (exponent > lowest || ftz ? exponent : lowest) - digits;
  double scaled = x * power(-unit);
  if (mode == NEAREST)
    scaled = rint(scaled);
  else if (mode == TOWARDS_ZERO)
    scaled = trunc(scaled);
  else
    scaled = mode == DOWN_WARD ? floor(scaled) : ceil(scaled);
  double out = scaled * power(unit);
  if (ftz && fabs(out) < power(lowest))
    return copysign(0, x);
  if (fabs(out) <= most)
    return out;
  int stays = mode == TOWARDS_ZERO || (mode == DOWN_WARD && x > 0) || (mode == UP_WARD && x < 0);
  return copysign(stays ? most : INFINITY, x);
}

/* x + y, truncated, with the last bit set where the sum is inexact: another rounding sees no false
 * tie. Boldo and Melquiond, "Emulation of a FMA and Correctly Rounded Sums". down: an exact zero of
 * opposite signs is -0. */
static double odd_sum(double x, double y, int down) {
  double total = x + y, back = total - x, error = (x - (total - back)) + (y - back);
  if (down && total == 0 && (signbit(x) || signbit(y)))
    return -0.0;
  uint64_t bits = bits_of(total);
  if (error == 0 || !isfinite(total) || bits & 1)
    return total;
  return with_bits((error > 0) == (total > 0) ? bits + 1 : bits - 1);
}

/* An integer of 64 bits as a double, rounded to odd. */
static inline double odd_integer(uint64_t x, int is_signed) {
  uint64_t low = x & 0xFFF;
  return odd_sum(is_signed ? (double)(int64_t)(x - low) : (double)(x - low), (double)low, 0);
}

/* a b + c, rounded once. Without an instruction for that, fmaf is a call, and some libraries'
 * rounds subnormal results twice. */
static inline float fused(float a, float b, float c) {
#if defined __FMA__ || defined __aarch64__
  return fmaf(a, b, c);
#else
  double product = (double)a * b;
  double sum = product + c;
  int may_be_tie = (bits_of(sum) & 0x1FFFFFFF) == 0x10000000;
  if (may_be_tie || fabs(sum) < FLT_MIN)
    return (float)odd_sum(product, c, 0);
  return (float)sum;
#endif
}

/* For .ftz, only a result next to the least normal number needs more than a comparison. */
static inline float flushed_product(float a, float b) {
  a = flush_f32(a);
  b = flush_f32(b);
  float out = a * b;
  return fabsf(out) <= FLT_MIN ? (float)fit((double)a * b, 23, -126, FLT_MAX, NEAREST, 1) : out;
}

/* The same of a multiply-add. */
static inline float flushed_fma(float a, float b, float c) {
  a = flush_f32(a);
  b = flush_f32(b);
  c = flush_f32(c);
  float out = fused(a, b, c);
  if (!(fabsf(out) <= FLT_MIN))
    return out;
  return (float)fit(odd_sum((double)a * b, c, 0), 23, -126, FLT_MAX, NEAREST, 1);
}

/* An integer; beyond the limits, the nearer one. */
static inline __int128 integer(double x, __int128 low, __int128 high, __int128 of_nan) {
  return isnan(x) ? of_nan : x <= (double)low ? low : x >= (double)high ? high : (__int128)x;
}

/* The number that a half's bits stand for. Without a branch, so that the compiler makes vectors of
 * it. */
static inline double from_half(uint32_t half) {
  uint32_t size = half & 0x7FFF, sign = (half & 0x8000) << 16;
  uint32_t bits = float_bits(as_float(size << 13) * 0x1p112f);
  bits = size == 0x7C00 ? 0x7F800000 : bits;
  bits = size > 0x7C00 ? 0x7FC00000 : bits;
  return as_float(sign | bits);
}

/* The functions below take numbers that the format has. NaN becomes the GPU's canonical one. */

/* The bits of a half. */
static uint16_t half_bits(double x) {
  if (isnan(x))
    return 0x7FFF;
  uint16_t sign = signbit(x) ? 0x8000 : 0;
  x = fabs(x);
  if (isinf(x))
    return sign | 0x7C00;
  if (x < 0x1p-14)
    return sign | (uint16_t)(x * 0x1p24);
  uint64_t bits = bits_of(x);
  return sign | (uint16_t)(((bits >> 52) - 1023 + 15) << 10 | (bits >> 42 & 1023));
}

/* The bits of a bfloat16. */
static inline uint16_t bfloat_bits(double x) {
  return isnan(x) ? 0x7FFF : (uint16_t)(float_bits((float)x) >> 16);
}

/* The number that a bfloat16's bits stand for. */
static inline float from_bfloat(uint16_t x) { return as_float((uint32_t)x << 16); }

/* The sum of two halves, as bits. */
static inline uint16_t add_half(uint32_t a, uint32_t b) {
  return half_bits(
      fit(from_half((uint16_t)a) + from_half((uint16_t)b), 10, -14, 65504, NEAREST, 0));
}

/* The sum of two bfloat16, as bits. */
static inline uint16_t add_bfloat(uint32_t a, uint32_t b) {
  return bfloat_bits(fit((double)from_bfloat((uint16_t)a) + from_bfloat((uint16_t)b), 7, -126,
                         0x1.FEp127, NEAREST, 0));
}

/* 8-bit floats: e5m2 is the upper byte of a half; e4m3 has one NaN and no infinities (Open Compute
 * Project, "OCP 8-bit Floating Point Specification", table 1). */
static inline uint8_t eight_bits(double x, double most, int digits) {
  if (isnan(x))
    return 0x7F;
  double size = fabs(x) < most ? fabs(x) : most;
  return (uint8_t)(half_bits(digits == 3 ? size * 0x1p-8 : size) >> (10 - digits) |
                   (signbit(x) ? 0x80 : 0));
}

/* The number that the bits of an e5m2 stand for. */
static inline double from_five(uint8_t x) { return from_half((uint16_t)(x << 8)); }

/* The number that the bits of an e4m3 stand for. */
static inline double from_eight(uint8_t x) {
  double size = (x & 0x7F) == 0x7F ? NAN : from_half((uint16_t)((x & 0x7F) << 7)) * 0x1p8;
  return x >> 7 ? -size : size;
}

/* ties: 0 rounds towards zero, 1 ties to even, 2 away from zero. Of NaN, an H200's bits. */
static inline uint32_t to_tf32(float x, int ties) {
  uint32_t bits = float_bits(x), added = ties == 2   ? 0x1000
                                         : ties == 1 ? 0xFFF + (bits >> 13 & 1)
                                                     : 0;
  if (isnan(x))
    return ties == 2 ? bits & 0xFFFFE000 : 0x7FFFE000;
  return isinf(x) ? bits : (bits + added) & 0xFFFFE000;
}

#endif
