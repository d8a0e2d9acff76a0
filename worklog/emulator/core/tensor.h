/* Tensor-core instructions: ldmatrix, stmatrix, movmatrix, mma and wmma. Included by core.c alone.
 * A lane (g, t) of a warp, g its number div 4 and t mod 4, holds words of blocks of 8 rows and 4
 * words: PTX ISA, "Matrix Fragments for mma". */
#ifndef WORKLOG_TENSOR_H
#define WORKLOG_TENSOR_H

#include "multiply.h"

enum tensor { MULTIPLY, MOVE_MATRICES, TURN, MOVE_FRAGMENT };

/* Of ldmatrix, stmatrix and movmatrix, and where a wmma fragment lies
 * (worklog.emulator.tensor.Places). bits: of a number; copies: how often registers hold it. places:
 * line and byte. */
typedef struct {
  int32_t wide, turned, size, count, matrices, align, steps[4], bits, copies, places_count,
      registers_count;
  int32_t numbers[]; /* the places, then the registers */
} Fragment;

/* Lanes of a register get words, and those with holes in theirs get poison. */
static void put(Warp *w, int32_t pc, int32_t offset, const uint32_t *words, const uint32_t *holes,
                uint32_t mask) {
  uint32_t bad = 0;
  if (offset == NONE)
    return;
  for (int k = 0; k < LANES; k++) {
    if (mask >> k & 1)
      AT(uint32_t, offset)[k] = words[k];
    bad |= (uint32_t)(holes && holes[k]) << k;
  }
  set_poison(w, offset, mask, bad & mask, pc);
}

/* A finding where lanes of the warp don't execute an instruction. */
static void whole(Launch *l, Block *b, Warp *w, int32_t pc, uint32_t mask) {
  if (mask != FULL)
    report_lanes(l, b, w, PART_OF_WARP, pc, ~mask, 0);
}

/* Multiplication. */

/* A matrix as words: rows (of A, or columns of B), and words along K; tall: the next register is
 * below. */
static void from_registers(const Warp *w, const int32_t *registers, int rows, int count, int tall,
                           uint32_t (*out)[WORDS]) {
  int down = rows / 8, along = count / down;
  for (int r = 0; r < count; r++) {
    int i = tall ? r % down : r / along, j = tall ? r / down : r % along;
    const uint32_t *words = AT(uint32_t, registers[r]);
    for (int k = 0; k < LANES; k++)
      out[8 * i + k / 4][4 * j + k % 4] = words[k];
  }
}

/* The place of row m and columns n to n + 7 in registers of D or C: the first of two registers,
 * which halves share, and the first of 4 lanes. */
static inline int place_of(const Form *f, int m, int n, int *lane) {
  int block = n / 8 * (f->rows / 8) + m / 8;
  *lane = m % 8 * 4;
  return f->sum == F16 ? block : 2 * block;
}

/* D = A B + C from x. c: NULL for zeros. */
static void multiply(Warp *w, const Form *f, Matrices *x, const int32_t *d, const int32_t *c,
                     uint32_t mask) {
  uint32_t out[MOST_COLUMNS / 2][LANES], old[MOST_COLUMNS], last[MOST_COLUMNS], words[WIDE];
  int half = f->sum == F16, lane;
  unpack_both(f, x);
  for (int m = 0; m < f->rows; m++) {
    int odd = x->odd_a[m];
    for (int n = 0; n < f->columns; n += WIDE)
      for (int j = 0, place = place_of(f, m, n, &lane); j < WIDE; j++) {
        uint32_t word = c ? AT(uint32_t, c[place + (half ? 0 : j % 2)])[lane + j / 2] : 0;
        if (half)
          word = float_bits(from_half(word >> 16 * (j % 2) & 0xFFFF));
        last[n + j] = word;
        old[n + j] = f->halved ? 0 : word;
        odd |= (word & 0x7F800000) == 0x7F800000;
      }
    for (int n = 0; n < f->columns; n += WIDE) {
      if (f->sum == S32)
        add_integers(f, x, m, n, old + n, words);
      for (int k = 0; k < f->depth && f->sum != S32; k += f->step) {
        double total[WIDE];
        add_floats(f, x, m, n, k, (float *)(old + n), odd, total);
        if (!half)
          sums_in_float(f, total, words);
        for (int j = 0; half && j < WIDE; j++)
          words[j] = to_half(total[j]);
        for (int j = 0; j < WIDE; j++) {
          old[n + j] = half ? float_bits((float)from_half(words[j])) : words[j];
          odd |= (old[n + j] & 0x7F800000) == 0x7F800000; /* for the next step */
        }
      }
      for (int j = 0; f->halved && j < WIDE; j++)
        words[j] = add_last(f, last[n + j], words[j]);
      int place = place_of(f, m, n, &lane);
      for (int j = 0; j < WIDE; j++)
        if (half)
          out[place][lane + j / 2] = words[j / 2 * 2] | words[j / 2 * 2 + 1] << 16;
        else
          out[place + j % 2][lane + j / 2] = words[j];
    }
  }
  for (int k = 0; k < f->counts[0]; k++)
    put(w, NONE, d[k], out[k], NULL, mask);
}

/* D = A B + C of f64. */
static void multiply_doubles(Warp *w, const Form *f, const int32_t *d, const int32_t *a,
                             const int32_t *b, const int32_t *c, uint32_t mask) {
#define NUMBER(registers, place, lane) ((double *)(w->file + (registers)[place]))[lane]
  int down = f->rows / 8, along = f->depth / 4;
  double out[MOST_ROWS / 8][2][LANES];
  for (int i = 0; i < down; i++)
    for (int e = 0; e < 2; e++)
      for (int lane = 0; lane < LANES; lane++) {
        out[i][e][lane] = NUMBER(c, 2 * i + e, lane);
        for (int k = 0; k < f->depth; k++)
          out[i][e][lane] =
              add_double(NUMBER(a, k / 4 * down + i, lane / 4 * 4 + k % 4),
                         NUMBER(b, k / 4 % along, (lane % 4 * 2 + e) * 4 + k % 4), out[i][e][lane]);
      }
  for (int i = 0; i < down; i++)
    for (int e = 0; e < 2; e++)
      for (int lane = 0; lane < LANES; lane++)
        if (mask >> lane & 1 && d[2 * i + e] != NONE)
          NUMBER(d, 2 * i + e, lane) = out[i][e][lane];
}

/* mma and wmma.mma. */
static void mma(Launch *l, Block *b, Warp *w, int32_t pc, const Form *f, uint32_t mask) {
  const int32_t *d = f->registers, *x = d + f->counts[0], *y = x + f->counts[1],
                *c = y + f->counts[2];
  Matrices matrices;
  use_all(l, b, w, pc, x, f->counts[1] + f->counts[2] + f->counts[3], mask);
  if (f->sum == F64) {
    multiply_doubles(w, f, d, x, y, c, mask);
  } else {
    from_registers(w, x, f->rows, f->counts[1], 1, matrices.a);
    from_registers(w, y, f->columns, f->counts[2], 0, matrices.b);
    multiply(w, f, &matrices, d, c, mask);
  }
  for (int k = 0; w->poisoned && k < f->counts[0]; k++)
    set_poison(w, d[k], mask, 0, NONE);
}

/* Loads and stores of matrices: what a lane accesses passes through `l->scratch`. */

/* Transpose a matrix of 8 x 8 halves. */
static void turn(uint32_t *words) {
  uint16_t old[64], *halves = (uint16_t *)words;
  memcpy(old, words, sizeof old);
  for (int k = 0; k < 64; k++)
    halves[k] = old[k % 8 * 8 + k / 8];
}

/* An access of lanes at these addresses, of `count` registers each. */
static void access_registers(Launch *l, Block *b, Warp *w, int32_t pc, int32_t site,
                             const uint64_t *address, const int32_t *registers, int count,
                             uint32_t mask) {
  Site *s = &l->sites[site];
  uint64_t own[LANES];
  memcpy(own, address, sizeof own);
  for (int k = 0; k < count; k++) {
    s->values[k] = registers[k];
    if (s->op == LOAD)
      set_poison(w, registers[k], mask, 0, NONE);
  }
  if (mask)
    access_at(l, b, w, pc, site, own, mask);
}

/* ldmatrix and stmatrix: lane 8 k + r has the address of row r of matrix k; lane 4 r + t has word t
 * of row r of each. */
static void move_matrices(Launch *l, Block *b, Warp *w, int32_t pc, int32_t site,
                          const uint64_t *address, int turned, const int32_t *registers, int count,
                          uint32_t mask) {
  int load = l->sites[site].op == LOAD;
  int32_t own[4];
  uint32_t words[LANES], holes[LANES];
  for (int t = 0; t < 4; t++)
    own[t] = l->scratch + SLOT * t;
  for (int k = 0; !load && k < count; k++) {
    memcpy(words, AT(uint32_t, registers[k]), sizeof words);
    if (turned)
      turn(words);
    for (int lane = 0; lane < LANES; lane++)
      AT(uint32_t, own[lane % 4])[8 * k + lane / 4] = words[lane];
  }
  access_registers(l, b, w, pc, site, address, own, 4,
                   count == 4 ? mask : mask & ((1u << 8 * count) - 1));
  for (int k = 0; load && k < count; k++) {
    for (int lane = 0; lane < LANES; lane++) {
      words[lane] = AT(uint32_t, own[lane % 4])[8 * k + lane / 4];
      holes[lane] = w->poisoned && poisoned(w, own[lane % 4]) >> (8 * k + lane / 4) & 1 ? FULL : 0;
    }
    if (turned) {
      turn(words);
      turn(holes);
    }
    put(w, pc, registers[k], words, holes, mask);
  }
}

/* wmma.load and wmma.store, as ptxas makes them on sm_90. */
static void fragment(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i,
                     const Fragment *f, const uint64_t *start, uint32_t mask) {
  const int32_t site = i->site;
  const int32_t *places = f->numbers, *registers = places + 2 * f->places_count;
  const Site *s = &l->sites[site];
  uint64_t address[LANES], stride[LANES];
  uint32_t crooked = 0, words[LANES], holes[LANES];
  int load = s->op == LOAD, own = f->registers_count / f->copies;
  for (int k = 0; k < LANES; k++) {
    stride[k] = (uint64_t)AT(uint32_t, i->b)[k] * (uint64_t)f->bits / 8;
    if (start[k] % (uint64_t)f->align || stride[k] % 16)
      crooked |= 1u << k & mask;
  }
  if (crooked) {
    int k = __builtin_ctz(crooked);
    report(l, b,
           (Event){.kind = CROOKED_MATRIX,
                   .pc = pc,
                   .other_pc = NONE,
                   .thread = first_of(b, w) + k,
                   .lanes = crooked,
                   .value = (int64_t)start[k] & FULL,
                   .other_block = (int64_t)stride[k]});
  }
  int matrices = load && s->count == 4 ? f->matrices : 0;
  for (int p = 0; p < f->places_count; p += matrices ? matrices : 1) {
    for (int k = 0; k < LANES; k++) {
      const int32_t *place = places + 2 * (p + (matrices ? k / 8 % matrices : 0));
      int line = matrices ? k % 8 : k / 4 * f->steps[0] + k % 4 * f->steps[1];
      int byte = matrices ? 0 : k / 4 * f->steps[2] + k % 4 * f->steps[3];
      address[k] = start[k] + (uint64_t)(place[0] + line) * stride[k] + (uint64_t)(place[1] + byte);
    }
    int32_t at = l->scratch + SLOT * (p % 4), turned = l->scratch;
    if (matrices) {
      move_matrices(l, b, w, pc, site, address, f->turned, registers + p, matrices, mask);
    } else if (load && f->size == 1) {
      access_registers(l, b, w, pc, site, address, &at, 1, mask);
      if (p % 4 < 3)
        continue;
      for (int k = 0; k < LANES; k++) {
        words[k] = holes[k] = 0;
        for (int e = 0; e < 4; e++) {
          words[k] |= AT(uint32_t, l->scratch + SLOT * e)[k] << 8 * e;
          if (w->poisoned)
            holes[k] |= poisoned(w, l->scratch + SLOT * e) >> k & 1;
        }
      }
      put(w, pc, registers[p / 4], words, holes, mask);
    } else if (f->turned) {
      memcpy(words, AT(uint32_t, load ? l->scratch : registers[p]), sizeof words);
      if (!load) {
        turn(words);
        memcpy(AT(uint32_t, turned), words, sizeof words);
      }
      access_registers(l, b, w, pc, site, address, &turned, 1, mask);
      if (!load)
        continue;
      memcpy(words, AT(uint32_t, turned), sizeof words);
      for (int k = 0; k < LANES; k++)
        holes[k] = w->poisoned && poisoned(w, turned) >> k & 1 ? FULL : 0;
      turn(words);
      turn(holes);
      put(w, pc, registers[p], words, holes, mask);
    } else {
      access_registers(l, b, w, pc, site, address, registers + f->count * p, f->count, mask);
    }
  }
  for (int k = own; load && k < f->registers_count; k++) {
    put(w, pc, registers[k], AT(uint32_t, registers[k - own]), NULL, mask);
    set_poison(w, registers[k], mask, poisoned(w, registers[k - own]) & mask, pc);
  }
}

/* An instruction of tensor cores, but for wgmma. */
static int tensor(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  const Fragment *f = (const Fragment *)(l->lists + i->target);
  const int32_t *registers = f->numbers + 2 * f->places_count;
  uint64_t address[LANES];
  uint32_t words[LANES];
  whole(l, b, w, pc, mask);
  if (i->op == MULTIPLY) {
    mma(l, b, w, pc, (const Form *)f, mask);
    return NEXT;
  }
  if (i->op == TURN) {
    use(l, b, w, pc, registers[1], mask);
    memcpy(words, AT(uint32_t, registers[1]), sizeof words);
    turn(words);
    put(w, pc, registers[0], words, NULL, mask);
    return NEXT;
  }
  const Site *s = &l->sites[i->site];
  addresses(l, b, w, s, i->a, f->wide, address);
  if (s->op == STORE)
    use_all(l, b, w, pc, registers, f->registers_count, mask);
  if (i->op == MOVE_FRAGMENT)
    fragment(l, b, w, pc, i, f, address, mask);
  else
    move_matrices(l, b, w, pc, i->site, address, f->turned, registers, f->registers_count, mask);
  return NEXT;
}

#endif
