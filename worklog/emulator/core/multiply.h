/* The arithmetic of tensor cores: D = A B + C of one warp, with the bits of a Hopper GPU.
 * worklog/kernel/tensor_products.py says how it rounds: as Xie et al., "MMA-Sim" (arXiv
 * 2511.10909), and Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores" (arXiv
 * 2512.07004), describe Hopper, but for the least emax: theirs is -126.
 * tests/gpu/test_gpu_instructions.py compares it with a GPU. Included by tensor.h alone.
 *
 * 8-bit floats: wgmma adds 32 products in one step, as the others but with fewer bits, and both
 * papers have the same numbers. mma.sync has no such hardware on sm_90: ptxas 13.0 turns it into
 * two multiplications of halves, HMMA, the first without C, and adds C to the result by FADD or
 * HADD2. Each 32-bit register's lower two numbers are in the first. */
#ifndef WORKLOG_MULTIPLY_H
#define WORKLOG_MULTIPLY_H

#include "access.h"

enum number { F64, F32, TF32, F16, BF16, E4M3, E5M2, S32, S8, U8, S4, U4, B1 };
enum multiply_flag { PLAIN, SATFINITE, XOR_BITS };
enum { WIDE = 8, MOST_ROWS = 32, MOST_COLUMNS = 256, WORDS = 8 };
/* FRACTION: bits below the largest term, and of 8-bit floats, whose sums in float32 also have this
 * many bits of fraction; NO_EXPONENT: of a zero */
enum { FRACTION = 25, EIGHT_FRACTION = 13, LEAST_SUM = -133, NO_EXPONENT = -5000, NEAR = 60 };
enum { MOST_FLOATS = 32 }; /* of a row of A or a column of B */

/* 8 columns side by side. */
typedef int32_t Ints __attribute__((vector_size(32), aligned(4)));
typedef float Floats __attribute__((vector_size(32), aligned(4)));
typedef int64_t Longs __attribute__((vector_size(64), aligned(8)));
typedef double Doubles __attribute__((vector_size(64), aligned(8)));

/* One multiplication: what Python makes of an opcode. step: the K of one sum. turned: rows or
 * columns lie together. halved: 8-bit floats are multiplied as halves, in two steps. */
typedef struct {
  int32_t type, other, sum, rows, columns, depth, step, flags, negated[2], turned[2], halved;
  int32_t counts[4], registers[]; /* of d, a, b and c */
} Form;

/* A by row, and B by column, as words along K, and their numbers: A by row and k; B by 8 columns, k
 * and column. A float has its significand and exponent here, or, where none is far from 1, its
 * value in the significand's place; an integer is in the exponent's place. odd: rows, and 8
 * columns, with infinities or NaN. */
typedef struct {
  uint32_t a[MOST_ROWS][WORDS], b[MOST_COLUMNS][WORDS];
  float significand_a[MOST_ROWS * MOST_FLOATS], significand_b[MOST_COLUMNS * MOST_FLOATS];
  int32_t exponent_a[MOST_ROWS * 128], exponent_b[MOST_COLUMNS * 32];
  int32_t far, odd_a[MOST_ROWS], odd_b[MOST_COLUMNS / WIDE];
} Matrices;

static const int BITS[] = {64, 32, 32, 16, 16, 8, 8, 32, 8, 8, 4, 4, 1};

/* To the nearest half, ties to even; what becomes zero is +0. */
static inline uint32_t to_half(double x) {
  double size = fabs(x);
  if (isnan(x))
    return 0x7FFF;
  if (size >= 0x1p16)
    return x < 0 ? 0xFC00 : 0x7C00;
  int exponent = size < 0x1p-14 ? -14 : (int)(bits_of(size) >> 52) - 1023;
  uint32_t bits = (uint32_t)((exponent + 14) << 10) + (uint32_t)rint(size * power(10 - exponent));
  return bits && x < 0 ? bits | 0x8000 : bits;
}

/* To float32 toward zero; +0. */
static inline uint32_t truncated(double x) {
  uint64_t bits = bits_of(x) & ~(uint64_t)0x1FFFFFFF;
  float out;
  memcpy(&x, &bits, sizeof x);
  if (isnan(x))
    return 0x7FFFFFFF;
  out = fabs(x) < 0x1p-126 ? (float)(int32_t)(x * 0x1p149) * 0x1p-149f : (float)x;
  return float_bits(out);
}

/* The bits below the largest term that a sum keeps. */
static inline int fraction_of(const Form *f) {
  return (f->type == E4M3 || f->type == E5M2) && !f->halved ? EIGHT_FRACTION : FRACTION;
}

/* A sum in float32, as bits. */
static inline uint32_t sum_in_float(const Form *f, double x) {
  uint32_t bits = truncated(x);
  if (fraction_of(f) == FRACTION || isnan(x))
    return bits;
  return bits & ~((1u << (23 - EIGHT_FRACTION)) - 1);
}

/* The sums of 8 columns in float32, as bits: rounded together, unless one needs more care. */
static inline void sums_in_float(const Form *f, const double *sums, uint32_t *words) {
  Longs bits = *(const Longs *)sums & ~(int64_t)0x1FFFFFFF;
  Floats rounded = __builtin_convertvector((Doubles)bits, Floats) + 0.0f; /* -0 becomes +0 */
  Ints sizes = (Ints)rounded & 0x7FFFFFFF, kept = (Ints)rounded;
  /* NaN, or below 2^-126, where the conversion has rounded. */
  Ints careful = (sizes > 0x7F800000) | ((sizes > 0) & (sizes <= 0x00800000));
  int any = 0;
  for (int j = 0; j < WIDE; j++)
    any |= careful[j];
  if (fraction_of(f) != FRACTION)
    kept &= ~((1 << (23 - EIGHT_FRACTION)) - 1);
  memcpy(words, &kept, sizeof kept);
  for (int j = 0; any && j < WIDE; j++)
    words[j] = sum_in_float(f, sums[j]);
}

/* C plus a sum that was computed without C, as bits of C's type. */
static inline uint32_t add_last(const Form *f, uint32_t c, uint32_t sum) {
  if (f->sum == F16)
    return add_half(half_bits(as_float(c)), sum);
  float out = as_float(c) + as_float(sum);
  return isnan(out) ? 0x7FFFFFFF : float_bits(out);
}

/* The byte of number k of a row of 8-bit floats, in the order in which they are added. */
static inline int byte_of(const Form *f, int k) {
  return f->halved ? k % f->step / 2 * 4 + k / f->step * 2 + k % 2 : k;
}

/* Number k of a row of floats. */
static double number_of(const Form *f, const uint32_t *row, int type, int k) {
  if (type == TF32)
    return as_float(row[k] & 0xFFFFE000);
  if (type == E4M3)
    return from_eight(((const uint8_t *)row)[byte_of(f, k)]);
  if (type == E5M2)
    return from_five(((const uint8_t *)row)[byte_of(f, k)]);
  uint32_t half = ((const uint16_t *)row)[k];
  return type == F16 ? from_half(half) : as_float(half << 16);
}

/* A number whose exponent is near 0. */
static inline float near(float significand, int32_t exponent) {
  int32_t zero = (float_bits(significand) & 0x7FFFFFFF) == 0;
  return significand * as_float(zero ? 0 : (uint32_t)(exponent + 127) << 23);
}

/* Significands and exponents of the numbers of a row, of `size` bytes each. Whether one is odd,
 * and, twice that, far. */
static inline int split(const void *row, int count, int fraction, int width, int size,
                        float *significand, int32_t *exponent) {
  int32_t ones = (1 << width) - 1, odd = 0, far = 0;
  for (int k = 0; k < count; k++) {
    uint32_t bits = size == 4   ? ((const uint32_t *)row)[k] & 0xFFFFE000
                    : size == 2 ? ((const uint16_t *)row)[k]
                                : ((const uint8_t *)row)[k];
    uint32_t digits = bits & ((1u << fraction) - 1);
    int32_t field = (int32_t)(bits >> fraction) & ones, e = (field ? field : 1) - (ones >> 1);
    float x = as_float(0x3F800000 | digits << (23 - fraction)) - (field ? 0.0f : 1.0f);
    /* E4M3 has numbers beside NaN in its last field. */
    int32_t special = (field == ones) & ((width != 4) | (digits == 7));
    int32_t zero = special | ((field | (int32_t)digits) == 0);
    uint32_t sign = bits >> (fraction + width) << 31;
    odd |= special;
    far |= (zero == 0) & ((e < -NEAR) | (e > NEAR));
    significand[k] = as_float((zero ? 0 : float_bits(x)) | sign);
    exponent[k] = zero ? NO_EXPONENT : e;
  }
  return odd | far << 1;
}

/* The same of 8-bit floats. */
static int split_eights(const Form *f, const uint32_t *row, int type, float *significand,
                        int32_t *exponent) {
  uint16_t halves[MOST_FLOATS];
  if (!f->halved)
    return split(row, f->depth, type == E4M3 ? 3 : 2, type == E4M3 ? 4 : 5, 1, significand,
                 exponent);
  for (int k = 0; k < f->depth; k++)
    halves[k] = half_bits(number_of(f, row, type, k));
  return split(halves, f->depth, 10, 5, 2, significand, exponent);
}

/* The numbers of A or B. by: how far the numbers of a row are apart. */
static int unpack(const Form *f, const uint32_t *row, int type, int negated, float *significand,
                  int32_t *exponent, int by) {
  float x[MOST_FLOATS];
  int32_t e[256];
  int out = 0, bits = BITS[type], sign = type == S4 ? 8 : 0, count = f->depth;
  uint32_t ones = (1u << bits % 32) - 1;
  if (type == TF32)
    out = split(row, count, 23, 8, 4, x, e);
  else if (type == F16)
    out = split(row, count, 10, 5, 2, x, e);
  else if (type == BF16)
    out = split(row, count, 7, 8, 2, x, e);
  else if (type < S32)
    out = split_eights(f, row, type, x, e);
  for (int k = 0; type >= S32 && k < count; k++) {
    if (type == S8)
      e[k] = ((const int8_t *)row)[k];
    else if (type == U8)
      e[k] = ((const uint8_t *)row)[k];
    else
      e[k] = ((int32_t)(row[k * bits / 32] >> k * bits % 32 & ones) ^ sign) - sign;
  }
  for (int k = 0; k < count; k++)
    exponent[k * by] = e[k];
  for (int k = 0; type < S32 && k < count; k++)
    significand[k * by] = negated ? -x[k] : x[k];
  return out;
}

/* Unpack A and B. */
static void unpack_both(const Form *f, Matrices *x) {
  int depth = f->depth, floats = f->type < S32, found, all = 0;
  for (int m = 0; m < f->rows; m++) {
    float *significands = x->significand_a + (floats ? m * depth : 0);
    found = unpack(f, x->a[m], f->type, f->negated[0], significands, x->exponent_a + m * depth, 1);
    x->odd_a[m] = found & 1;
    all |= found;
  }
  memset(x->odd_b, 0, sizeof x->odd_b);
  for (int n = 0; n < f->columns; n++) {
    int place = n / WIDE * WIDE * depth + n % WIDE;
    float *significands = x->significand_b + (floats ? place : 0);
    found = unpack(f, x->b[n], f->other, f->negated[1], significands, x->exponent_b + place, WIDE);
    x->odd_b[n / WIDE] |= found & 1;
    all |= found;
  }
  x->far = all >> 1;
  if (!floats || x->far)
    return;
  for (int k = 0; k < f->rows * depth; k++)
    x->significand_a[k] = near(x->significand_a[k], x->exponent_a[k]);
  for (int k = 0; k < f->columns * depth; k++)
    x->significand_b[k] = near(x->significand_b[k], x->exponent_b[k]);
}

/* The sum of one column in IEEE arithmetic, which counts where it isn't finite. */
static double add_plainly(const Form *f, const Matrices *x, int m, int n, int start, double c) {
  for (int k = start; k < start + f->step; k++) {
    double p = number_of(f, x->a[m], f->type, k), q = number_of(f, x->b[n], f->other, k);
    c += (f->negated[0] ? -p : p) * (f->negated[1] ? -q : q);
  }
  return c;
}

/* c + a row of A times 8 columns of B, for k from `start` on: exact, in units of 2^(emax -
 * fraction) that each term is truncated to. The terms are below 2^27, or of 8-bit floats 2^15, so
 * two sums of at most 8, or 16, of them each fit. odd: some number may not be finite. */
static inline void add_floats(const Form *f, const Matrices *x, int m, int n, int start,
                              const float *sums, int odd, double *out) {
  Floats c = *(const Floats *)sums;
  c = (Floats)((Ints)c & (((Ints)c & 0x7F800000) != 0x7F800000));
  const int fraction = fraction_of(f);
  const float *a = x->significand_a + m * f->depth;
  const int32_t *ea = x->exponent_a + m * f->depth;
  const Floats *b = (const Floats *)(x->significand_b + n * f->depth);
  const Ints *eb = (const Ints *)(x->exponent_b + n * f->depth);
  Ints most = ((Ints)c >> 23 & 255) - 127, even = {0}, uneven = {0},
       more = (f->sum == F16 ? -14 : -126) - most;
  most = (most + (more & (more > 0)) - LEAST_SUM) & (c != 0.0f);
  most += LEAST_SUM;
  for (int k = start; k < start + f->step; k++) {
    more = ea[k] + eb[k] - most;
    most += more & (more > 0);
  }
  if (x->far) {
    for (int k = start; k < start + f->step; k += 2) {
      /* What is scaled by less than 2^-126 is below 1. */
      Ints one = (ea[k] + fraction + 127) + eb[k] - most,
           two = (ea[k + 1] + fraction + 127) + eb[k + 1] - most;
      one = (one & (one > 0)) << 23;
      two = (two & (two > 0)) << 23;
      even += __builtin_convertvector(a[k] * b[k] * (Floats)one, Ints);
      uneven += __builtin_convertvector(a[k + 1] * b[k + 1] * (Floats)two, Ints);
    }
  } else {
    Ints field = fraction + 127 - most, beyond = field - 254;
    Floats scale = (Floats)((field - (beyond & (beyond > 0))) << 23);
    for (int k = start; k < start + f->step; k += 2) {
      even += __builtin_convertvector(a[k] * b[k] * scale, Ints);
      uneven += __builtin_convertvector(a[k + 1] * b[k + 1] * scale, Ints);
    }
  }
  /* The scale may be beyond a float's range. */
  Ints half = (fraction - most) >> 1, rest = fraction - most - half;
  Ints own = __builtin_convertvector(
      c * (Floats)((half + 127) << 23) * (Floats)((rest + 127) << 23), Ints);
  Doubles total = __builtin_convertvector(own, Doubles) + __builtin_convertvector(even, Doubles);
  total += __builtin_convertvector(uneven, Doubles);
  *(Doubles *)out = total * (Doubles)(__builtin_convertvector(most - fraction + 1023, Longs) << 52);
  for (int j = 0; (odd || x->odd_b[n / WIDE]) && j < WIDE; j++) {
    double plain = add_plainly(f, x, m, n + j, start, sums[j]);
    out[j] = isfinite(plain) ? out[j] : plain;
  }
}

/* c + a row of A times 8 columns of B, of integers. */
static void add_integers(const Form *f, const Matrices *x, int m, int n, const uint32_t *c,
                         uint32_t *out) {
  const int32_t *a = x->exponent_a + m * f->depth;
  const Ints *b = (const Ints *)(x->exponent_b + n * f->depth);
  Ints sums = {0};
  if (f->flags == XOR_BITS)
    for (int k = 0; k < f->depth; k++)
      sums += a[k] ^ b[k];
  else
    for (int k = 0; k < f->depth; k++)
      sums += a[k] * b[k];
  for (int j = 0; j < WIDE; j++) {
    int64_t exact = (int64_t)(int32_t)c[j] + sums[j];
    if (f->flags == SATFINITE)
      exact = exact > INT32_MAX ? INT32_MAX : exact < INT32_MIN ? INT32_MIN : exact;
    out[j] = (uint32_t)exact;
  }
}

/* One multiply-add of f64. Of NaN operands, b gives its bits before c, and c before a. */
static double add_double(double a, double b, double c) {
  double operands[3] = {b, c, a}, out = fma(a, b, c);
  if (!isnan(out))
    return out;
  uint64_t bits = 0xFFF8000000000000;
  for (int k = 0; k < 3; k++)
    if (isnan(operands[k])) {
      bits = bits_of(operands[k]) | (uint64_t)1 << 51;
      break;
    }
  memcpy(&out, &bits, sizeof out);
  return out;
}

#endif
