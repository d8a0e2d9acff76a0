/* wgmma: a warp group multiplies 64 rows by up to 256 columns, with B, and maybe A, in shared
 * memory. Included by core.c alone. Each warp computes its own 16 rows when it issues the
 * instruction; that registers and shared memory are left alone until wgmma.wait_group is checked.
 * PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions". */
#ifndef WORKLOG_WGMMA_H
#define WORKLOG_WGMMA_H

#include "tensor.h"

enum wgmma { GROUP_FENCE, GROUP_COMMIT, GROUP_WAIT, GROUP_MULTIPLY };
enum { LINE = 16 }; /* bytes that lie together in every layout */

/* Where a line of a matrix starts: PTX ISA, "Matrix Descriptor Format", and the canonical layouts
 * of CUTLASS (mma_sm90_desc.hpp). A line holds numbers along K, or, where the matrix is turned, 8
 * rows at one k. */
static int64_t line_of(uint64_t descriptor, int turned, int line, int chunk) {
  static const int widths[] = {0, 128, 64, 32}; /* of a swizzled pattern; 0: no swizzle */
  int start = (descriptor & 0x3FFF) << 4, leading = (descriptor >> 16 & 0x3FFF) << 4;
  int stride = (descriptor >> 32 & 0x3FFF) << 4;
  int width = widths[descriptor >> 62], per_line = width ? width / LINE : 1;
  int64_t place;
  if (!width)
    place = turned ? chunk * stride + line / 8 * leading : line / 8 * stride + chunk * leading;
  else if (turned)
    place = chunk % per_line * LINE + chunk / per_line * leading + line / 8 * stride;
  else
    place = line / 8 * stride + chunk * LINE;
  place += start + line % 8 * (width ? width : LINE);
  return width ? place ^ (place >> 3 & (width - LINE)) : place;
}

/* A warp's number in its warp group. */
static int in_group(const Launch *l, const Block *b, int warp) {
  return warp % own_warps(l, b) % 4;
}

/* Line number k of the lines of rows from `first` on, in the shared memory of a warp's block. */
static uint64_t numbered(const Launch *l, const Block *b, int warp, uint64_t descriptor, int turned,
                         int first, int k) {
  int line = turned ? k % 16 : first + k / 2, chunk = turned ? first / 8 + k / 16 : k % 2;
  return (uint64_t)(warp / own_warps(l, b) * (int64_t)l->shared_stride +
                    line_of(descriptor, turned, line, chunk));
}

/* Rows of A, or columns of B, as words along K. Whether they are being read from now on. */
static int from_shared(Launch *l, Block *b, Warp *w, int32_t pc, uint64_t descriptor, int turned,
                       int first, int rows, uint32_t (*out)[WORDS]) {
  uint64_t end = 0, seen[LANES];
  int fresh = 0, thread = first_of(b, w), warp = number_of_warp(b, w);
  for (int k = 0; k < 2 * rows; k++) {
    uint64_t line = numbered(l, b, 0, descriptor, turned, first, k) + LINE;
    end = line > end ? line : end;
  }
  memset(out, 0, sizeof *out * (size_t)rows);
  if (end > (uint64_t)l->own_size) {
    report(l, b,
           (Event){.kind = MATRIX_OUTSIDE,
                   .pc = pc,
                   .other_pc = NONE,
                   .thread = thread,
                   .lanes = 1,
                   .value = (int64_t)end,
                   .other_block = l->own_size});
    return 0;
  }
  for (int k = 0; k < 2 * rows; k++) {
    uint64_t line = numbered(l, b, warp, descriptor, turned, first, k);
    seen[k % LANES] = line;
    if (k % LANES == LANES - 1)
      note(l, b, w, NULL, pc, SHARED, FULL, seen);
    if (turned)
      for (int e = 0; e < 8; e++)
        memcpy((uint16_t *)out[k / 16 * 8 + e] + k % 16, b->shared.data + line + 2 * e, 2);
    else
      memcpy(&out[k / 2][k % 2 * 4], b->shared.data + line, LINE);
    if (!l->checking)
      continue;
    FOR_CELLS(place, line, LINE, l->grain)
      fresh |= !b->shared.written[place];
    begin_reading(l, b, pc, thread, line, LINE);
  }
  if (fresh)
    report_lanes(l, b, w, MATRIX_UNWRITTEN, pc, 1, 0);
  return l->checking;
}

/* What a warp has in flight is complete up to a group. */
static void wait_for_groups(Launch *l, Block *b, Warp *w, int32_t group) {
  Async *own = b->async;
  int number = number_of_warp(b, w), kept = 0;
  for (int n = 0; n < own->products_count; n++) {
    const Product *product = &own->products[n];
    if (product->warp != number || product->group > group) {
      own->products[kept++] = *product;
      continue;
    }
    const Form *f = (const Form *)(l->lists + l->code[product->pc].target);
    for (int side = 0; side < 2; side++) {
      int first = side ? 0 : in_group(l, b, number) * 16, rows = side ? f->columns : 16;
      for (int k = 0; product->reads >> side & 1 && k < 2 * rows; k++) {
        uint64_t line =
            numbered(l, b, number, product->descriptors[side], f->turned[side], first, k);
        end_reading(l, b, product->pc, number * LANES, line, LINE);
      }
    }
  }
  own->products_count = kept;
  for (int slot = 0; w->poisoned && slot < l->file_size / SLOT; slot++) {
    Poison *poison = &w->poison[slot];
    int waits = l->code[poison->pc].kind != WGMMA;
    for (int n = 0; n < kept; n++)
      waits |= own->products[n].warp == number && own->products[n].pc == poison->pc;
    if (!waits)
      poison->lanes = 0;
  }
}

/* The warp group is whole, has passed a wgmma.fence, and gives one descriptor, which is supported.
 * Whether it is. */
static int check_group(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i,
                       uint32_t mask) {
  int number = number_of_warp(b, w), first = number - in_group(l, b, number), own = own_warps(l, b);
  int good = first % own + 4 <= own;
  w->multiplied++;
  w->multiplies = pc;
  for (int k = first; k < first + 4 && good; k++)
    good =
        b->warps[k].live == FULL || (!b->warps[k].live && b->warps[k].multiplied >= w->multiplied);
  if (!good)
    report_lanes(l, b, w, PART_OF_GROUP, pc, 1, 0);
  uint32_t early = mask & ~w->fenced;
  if (early)
    report_lanes(l, b, w, NO_GROUP_FENCE, pc, early & -early, 0);
  for (int side = 0; side < 2; side++) {
    const uint64_t *values = AT(uint64_t, side ? i->b : i->a);
    int differ = 0, shifted = 0;
    if (!side && i->a == NONE)
      continue;
    FOR_LANES(k, mask) {
      differ |= values[k] != values[__builtin_ctz(mask)];
      shifted |= values[k] >> 49 & 7;
    }
    if (differ)
      report_lanes(l, b, w, DESCRIPTORS, pc, 1, 0);
    if (shifted) {
      report_lanes(l, b, w, BASE_OFFSET, pc, 1, 0);
      l->status = ABORTED;
      return 0;
    }
  }
  return 1;
}

/* An instruction of a warp group. */
static int wgmma(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  int number = number_of_warp(b, w), reads = 0;
  if (!async_of(l, b))
    return STOP;
  if (i->op == GROUP_FENCE)
    w->fenced |= mask;
  else if (i->op == GROUP_COMMIT)
    w->group++;
  else if (i->op == GROUP_WAIT)
    wait_for_groups(l, b, w, w->group - 1 - i->target);
  if (i->op != GROUP_MULTIPLY)
    return NEXT;
  const Form *f = (const Form *)(l->lists + i->target);
  const int32_t *d = f->registers, *a = d + f->counts[0];
  whole(l, b, w, pc, mask);
  if (!check_group(l, b, w, pc, i, mask))
    return STOP;
  use_all(l, b, w, pc, a, f->counts[1], mask);
  Product product = {
      .warp = number, .pc = pc, .group = w->group, .descriptors = {0, *AT(uint64_t, i->b)}};
  if (i->a != NONE)
    product.descriptors[0] = *AT(uint64_t, i->a);
  Matrices x;
  mark_first(b, w, i->site);
  note(l, b, w, NULL, pc, GLOBAL, 0, NULL); /* one more multiplication: its lines follow */
  if (i->a == NONE)
    from_registers(w, a, 16, f->counts[1], 1, x.a);
  else
    reads |= from_shared(l, b, w, pc, product.descriptors[0], f->turned[0],
                         in_group(l, b, number) * 16, 16, x.a);
  reads |= from_shared(l, b, w, pc, product.descriptors[1], f->turned[1], 0, f->columns, x.b) << 1;
  multiply(w, f, &x, d, *AT(uint32_t, i->c) & 1 ? d : NULL, mask);
  product.reads = reads;
  append(l, &b->chunks, &b->async->products, &b->async->products_count, &product, sizeof product);
  for (int k = 0; k < f->counts[0]; k++)
    set_poison(w, d[k], mask, mask, pc);
  return NEXT;
}

/* At the end of a block: warps that exited while others of their group went on. */
static void check_groups(Launch *l, Block *b) {
  for (int k = 0; k < b->warps_count; k++) {
    int least = b->warps[k].multiplied;
    for (int n = k - in_group(l, b, k), end = n + 4; n < end && n < b->warps_count; n++)
      if (b->warps[n].multiplied < least)
        least = b->warps[n].multiplied;
    if (b->warps[k].multiplied > least)
      report_lanes(l, b, &b->warps[k], PART_OF_GROUP, b->warps[k].multiplies, 1, 0);
  }
}

#endif
