/* The arithmetic of tensor cores: D = A B + C of one warp, with the bits of a Hopper GPU. worklog.emulator.tensor says
 * how it rounds, and who found that. Included by tensor.h alone. */
#ifndef WORKLOG_MULTIPLY_H
#define WORKLOG_MULTIPLY_H

#include "arithmetic.h"
#include "poison.h"

enum number { F64, F32, TF32, F16, BF16, S32, S8, U8, S4, U4, B1 };
enum how { PLAIN, SATFINITE, XOR_BITS };
enum { WIDE = 8, MOST_ROWS = 32, MOST_COLUMNS = 256, WORDS = 8 };
enum { FRACTION = 25, LEAST_SUM = -133, NO_EXPONENT = -5000 }; /* bits below the largest term; of a zero */

/* One multiplication: what Python makes of an opcode. step: the K of one sum. turned: rows or columns lie together. */
typedef struct {
  int32_t type, other, sum, rows, columns, depth, step, how, negated[2], turned[2];
  int32_t counts[4], registers[]; /* of d, a, b and c */
} Form;

/* A by row, and B by column, as words along K, and their numbers: A by row and k; B by 8 columns, k and column. A float
 * is significand x 2^exponent, an integer is in the exponent's place. odd: rows and columns with infinities or NaN. */
typedef struct {
  uint32_t a[MOST_ROWS][WORDS], b[MOST_COLUMNS][WORDS];
  float significand_a[MOST_ROWS * 16], significand_b[MOST_COLUMNS * 16];
  int32_t exponent_a[MOST_ROWS * 128], exponent_b[MOST_COLUMNS * 32];
  uint8_t odd_a[MOST_ROWS], odd_b[MOST_COLUMNS];
} Matrices;

static const int BITS[] = {64, 32, 32, 16, 16, 32, 8, 8, 4, 4, 1};

/* To the nearest half, ties to even; what becomes zero is +0. */
static inline uint32_t to_half(double x) {
  double size = fabs(x);
  if (isnan(x)) return 0x7FFF;
  if (size >= 0x1p16) return x < 0 ? 0xFC00 : 0x7C00;
  int exponent = size < 0x1p-14 ? -14 : (int)(bits_of(size) >> 52) - 1023;
  uint32_t bits = (uint32_t)((exponent + 14) << 10) + (uint32_t)rint(size * power(10 - exponent));
  return bits && x < 0 ? bits | 0x8000 : bits;
}

/* To float32 toward zero; +0. */
static inline uint32_t truncated(double x) {
  uint64_t bits = bits_of(x) & ~(uint64_t)0x1FFFFFFF;
  float out;
  memcpy(&x, &bits, sizeof x);
  if (isnan(x)) return 0x7FFFFFFF;
  out = fabs(x) < 0x1p-126 ? (float)(int32_t)(x * 0x1p149) * 0x1p-149f : (float)x;
  uint32_t result;
  memcpy(&result, &out, sizeof result);
  return result;
}

/* Number k of a row of floats. */
static double number_of(const uint32_t *row, int type, int k) {
  if (type == TF32) return as_float(row[k] & 0xFFFFE000);
  uint32_t half = ((const uint16_t *)row)[k];
  return type == F16 ? from_half(half) : as_float(half << 16);
}

/* Significands and exponents of the numbers of a row. */
static inline int split(const uint32_t *row, int count, int fraction, int width, int halves, float *significand,
                        int32_t *exponent) {
  uint32_t ones = (1u << width) - 1, odd = 0;
  for (int k = 0; k < count; k++) {
    uint32_t bits = halves ? ((const uint16_t *)row)[k] : row[k] & 0xFFFFE000;
    uint32_t digits = bits & ((1u << fraction) - 1), field = bits >> fraction & ones, infinite = field == ones;
    float x = as_float(0x3F800000 | digits << (23 - fraction)) - (field ? 0.0f : 1.0f);
    x = infinite ? 0.0f : x;
    odd |= infinite;
    significand[k] = bits >> (fraction + width) & 1 ? -x : x;
    exponent[k] = x == 0.0f ? NO_EXPONENT : (int32_t)(field ? field : 1) - (int32_t)(ones >> 1);
  }
  return (int)odd;
}

/* The numbers of A or B. by: how far the numbers of a row are apart. */
static int unpack(const uint32_t *row, int type, int count, int negated, float *significand, int32_t *exponent,
                  int by) {
  float x[16];
  int32_t e[256];
  int odd = 0, bits = BITS[type];
  if (type == TF32) odd = split(row, count, 23, 8, 0, x, e);
  else if (type == F16) odd = split(row, count, 10, 5, 1, x, e);
  else if (type == BF16) odd = split(row, count, 7, 8, 1, x, e);
  else if (type == S8)
    for (int k = 0; k < count; k++) e[k] = ((const int8_t *)row)[k];
  else if (type == U8)
    for (int k = 0; k < count; k++) e[k] = ((const uint8_t *)row)[k];
  else {
    int32_t sign = type == S4 ? 8 : 0;
    uint32_t ones = (1u << bits) - 1;
    for (int k = 0; k < count; k++) e[k] = ((int32_t)(row[k * bits / 32] >> k * bits % 32 & ones) ^ sign) - sign;
  }
  for (int k = 0; k < count; k++) exponent[k * by] = e[k];
  for (int k = 0; type < S32 && k < count; k++) significand[k * by] = negated ? -x[k] : x[k];
  return odd;
}

static void unpack_both(const Form *f, Matrices *x) {
  int depth = f->depth, floats = f->type < S32;
  for (int m = 0; m < f->rows; m++) {
    float *significands = x->significand_a + (floats ? m * depth : 0);
    x->odd_a[m] = (uint8_t)unpack(x->a[m], f->type, depth, f->negated[0], significands, x->exponent_a + m * depth, 1);
  }
  for (int n = 0; n < f->columns; n++) {
    int place = n / WIDE * WIDE * depth + n % WIDE;
    float *significands = x->significand_b + (floats ? place : 0);
    x->odd_b[n] = (uint8_t)unpack(x->b[n], f->other, depth, f->negated[1], significands, x->exponent_b + place, WIDE);
  }
}

/* A product of two significands, truncated. exponent: below the largest. */
static inline int32_t term(float a, float b, int32_t exponent) {
  int32_t field = exponent + FRACTION + 127;
  return (int32_t)(a * b * as_float((uint32_t)(field > 0 ? field : 0) << 23));
}

/* c += a row of A times 8 columns of B, for k from `start` on: exact, in units of 2^(emax - 25) that each term is
 * truncated to. The terms are below 2^27, so two sums of at most 8 of them each fit. */
static void add_floats(const Form *f, const Matrices *x, int m, int n, int start, double *c) {
  int32_t most[WIDE], even[WIDE] = {0}, odd[WIDE] = {0};
  int least = f->sum == F16 ? -14 : -126, special = x->odd_a[m];
  const float *a = x->significand_a + m * f->depth, *b = x->significand_b + n * f->depth;
  const int32_t *ea = x->exponent_a + m * f->depth, *eb = x->exponent_b + n * f->depth;
  double old[WIDE];
  for (int j = 0; j < WIDE; j++) {
    int exponent = (int)(bits_of(c[j]) >> 52 & 0x7FF) - 1023;
    special |= exponent == 1024 || x->odd_b[n + j];
    old[j] = exponent == 1024 ? 0 : c[j];
    exponent = exponent > least ? exponent : least;
    most[j] = old[j] == 0 || exponent < LEAST_SUM ? LEAST_SUM : exponent;
  }
  for (int k = start; k < start + f->step; k++)
    for (int j = 0; j < WIDE; j++) {
      int32_t exponent = ea[k] + eb[k * WIDE + j];
      most[j] = most[j] > exponent ? most[j] : exponent;
    }
  for (int k = start; k < start + f->step; k += 2)
    for (int j = 0; j < WIDE; j++) {
      even[j] += term(a[k], b[k * WIDE + j], ea[k] + eb[k * WIDE + j] - most[j]);
      odd[j] += term(a[k + 1], b[k * WIDE + WIDE + j], ea[k + 1] + eb[k * WIDE + WIDE + j] - most[j]);
    }
  for (int j = 0; j < WIDE; j++) {
    double scale = power(FRACTION - most[j]), plain = c[j];
    double exact = ((double)(int32_t)(old[j] * scale) + even[j] + odd[j]) / scale;
    for (int k = start; special && k < start + f->step; k++) {
      double p = number_of(x->a[m], f->type, k), q = number_of(x->b[n + j], f->other, k);
      plain += (f->negated[0] ? -p : p) * (f->negated[1] ? -q : q);
    }
    c[j] = special && !isfinite(plain) ? plain : exact;
  }
}

static void add_integers(const Form *f, const Matrices *x, int m, int n, int32_t *sums) {
  const int32_t *a = x->exponent_a + m * f->depth, *b = x->exponent_b + n * f->depth;
  for (int k = 0; k < f->depth && f->how == XOR_BITS; k++)
    for (int j = 0; j < WIDE; j++) sums[j] += a[k] ^ b[k * WIDE + j];
  for (int k = 0; k < f->depth && f->how != XOR_BITS; k++)
    for (int j = 0; j < WIDE; j++) sums[j] += a[k] * b[k * WIDE + j];
}

/* One multiply-add of f64. Of NaN operands, b gives its bits before c, and c before a. */
static double add_double(double a, double b, double c) {
  double operands[3] = {b, c, a}, out = fma(a, b, c);
  if (!isnan(out)) return out;
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
