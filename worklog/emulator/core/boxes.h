/* What bulk copies move: boxes of tensors. Included by core.c alone. */
#ifndef WORKLOG_BOXES_H
#define WORKLOG_BOXES_H

#include "access.h"

/* PTX ISA, "cp.async.bulk": sizes and addresses are multiples of 16; with a tensor map, in shared memory of 128. A box
 * starts at a multiple of 16 bytes along dimension 0: an H200 ends another copy with an illegal instruction. */
enum { BULK_GRAIN = 16, TENSOR_GRAIN = 128, MAP_SIZE = 128 };

typedef struct { /* of a box along dimension 0: the elements that exist, and their offset in the tensor, in bytes */
  int64_t first, count, offset;
} Strip;

static int64_t strips_of(const Layout *y) { return y->counts[1] * y->counts[2] * y->counts[3] * y->counts[4]; }

static Strip strip_of(const Box *x, int64_t number) {
  const Layout *y = &x->layout;
  int64_t first = x->corner[0] < 0 ? -x->corner[0] : 0, end = y->shape[0] - x->corner[0];
  uint64_t offset = 0; /* which may wrap for what is not in the tensor */
  end = end > y->counts[0] ? y->counts[0] : end;
  for (int d = 1; d < y->dimensions; number /= y->counts[d++]) {
    int64_t index = x->corner[d] + y->steps[d] * (number % y->counts[d]);
    if (index < 0 || index >= y->shape[d]) end = first;
    offset += (uint64_t)index * (uint64_t)y->strides[d];
  }
  return (Strip){first, end > first ? end - first : 0, (int64_t)(offset + (uint64_t)((x->corner[0] + first) * y->item))};
}

/* Bytes from the tensor's first one to the end of the last one that exists in the box. */
static double reach_of(const Box *x) {
  double out = x->layout.item;
  for (int d = 0; d < x->layout.dimensions; d++) {
    int64_t most = x->layout.shape[d] - 1 - x->corner[d], last = most < 0 ? NONE : most / x->layout.steps[d];
    if (last >= x->layout.counts[d]) last = x->layout.counts[d] - 1;
    int64_t index = x->corner[d] + x->layout.steps[d] * last;
    if (last < 0 || index < 0) return 0;
    out += (double)index * (double)x->layout.strides[d];
  }
  return out;
}

/* Between the order of a tensor and that of shared memory. CUTLASS's Swizzle: bits of an address are exchanged with those
 * three higher. */
static void swizzle(const Box *x, uint8_t *ordered, uint8_t *shared, int back) {
  uint64_t bits = x->layout.swizzle ? (uint64_t)(x->layout.swizzle / 16 - 1) << 4 : 0;
  for (int64_t k = 0; k < x->size; k += BULK_GRAIN) {
    uint64_t address = (uint64_t)(x->start + k), place = (address ^ (address >> 3 & bits)) - (uint64_t)x->start;
    memcpy(back ? ordered + k : shared + place, back ? shared + place : ordered + k, BULK_GRAIN);
  }
}

/* The box's bytes in the order of shared memory, from global memory; NULL without memory. */
static uint8_t *read_box(Launch *l, const Box *x) {
  const Layout *y = &x->layout;
  uint8_t *data = room(l, (size_t)x->size + 1), *out = room(l, (size_t)x->size + 1);
  for (int64_t k = 0; y->nan && data && k < x->size; k++) data[k] = k % y->item == y->item - 1 ? 0x7F : 0xFF;
  for (int64_t k = 0; data && k < strips_of(y); k++) {
    Strip s = strip_of(x, k);
    uint8_t *to = data + (k * y->counts[0] + s.first) * y->item;
    if (s.count && x->buffer->data && l->values)
      memcpy(to, x->buffer->data + (x->address - x->buffer->base) + s.offset, (size_t)(s.count * y->item));
    else if (s.count) memset(to, 0, (size_t)(s.count * y->item));
  }
  if (data && out) swizzle(x, data, out, 0);
  free(data);
  return out;
}

/* To global memory; what is outside of the tensor is not written. */
static void write_box(Launch *l, const Block *b, const Box *x) {
  const Layout *y = &x->layout;
  uint8_t *data = room(l, (size_t)x->size + 1);
  if (!data || !x->buffer->data || !l->values) {
    free(data);
    return;
  }
  swizzle(x, data, b->shared + x->start, 1);
  for (int64_t k = 0; k < strips_of(y); k++) {
    Strip s = strip_of(x, k);
    const uint8_t *from = data + (k * y->counts[0] + s.first) * y->item;
    if (s.count)
      memcpy(x->buffer->data + (x->address - x->buffer->base) + s.offset, from, (size_t)(s.count * y->item));
  }
  free(data);
}

/* The traffic of a box: its elements are one request. */
static void count_box(Launch *l, Site *s, const Box *x) {
  const Layout *y = &x->layout;
  int64_t elements = 0, at = 0, item = y->item, rows = strips_of(y), most = y->counts[0] * item / 32 + 2;
  uint64_t *sectors = room(l, sizeof *sectors * (size_t)(rows * most + 1));
  for (int64_t k = 0; sectors && k < rows; k++) {
    Strip strip = strip_of(x, k);
    uint64_t first = x->address + (uint64_t)strip.offset, last = first + (uint64_t)((strip.count - 1) * item);
    for (uint64_t sector = first / 32; strip.count && sector <= last / 32; sector++) sectors[at++] = sector;
    elements += strip.count;
  }
  int64_t *costs = s->last.costs;
  memset(costs, 0, sizeof s->last.costs);
  costs[0] = 1, costs[4] = elements * item;
  if (at) costs[1] = distinct(sectors, (int)at);
  for (int64_t k = 0; k < at; k++) sectors[k] /= 4;
  if (at) costs[5] = distinct(sectors, (int)at);
  for (int k = 0; k < 6; k++) s->costs[k] += costs[k];
  free(sectors);
}

/* The layout that a tensor map at an address gives; 0 if there is none of these dimensions that the emulator has made. */
static int read_map(Launch *l, uint64_t address, int dimensions, Box *out) {
  const Buffer *holder = buffer_at(l, address);
  uint64_t words[3];
  if (!holder || !holder->data || address % 64 || address + MAP_SIZE > holder->base + holder->size) return 0;
  memcpy(words, holder->data + (address - holder->base), sizeof words);
  if (memcmp(words, "worklog ", 8) || words[2] >= (uint64_t)l->layouts_count) return 0;
  out->address = words[1], out->layout = l->layouts[words[2]];
  return out->layout.dimensions == dimensions;
}

/* Whether the places of a box are valid; else they are told. along: what must be a multiple of 16 bytes, too. */
static int check_box(Launch *l, Block *b, Box *x, int tensor, int64_t along, int stores) {
  int64_t unit = tensor ? TENSOR_GRAIN : BULK_GRAIN, low = 0;
  int32_t kind = NONE;
  for (int d = 0; d < x->layout.dimensions; d++) low = x->corner[d] < low ? x->corner[d] : low;
  x->buffer = buffer_at(l, x->address);
  if (x->start & (unit - 1) || x->address % BULK_GRAIN || along % BULK_GRAIN)
    kind = tensor && along % BULK_GRAIN ? BOX_MISALIGNED : BULK_MISALIGNED;
  else if (x->start < 0 || x->size > l->shared_size || x->start > l->shared_size - x->size) kind = BULK_OUTSIDE_SHARED;
  else if (!x->buffer || reach_of(x) > (double)(x->buffer->base + x->buffer->size - x->address)) kind = BULK_OUTSIDE;
  else if (stores && !x->buffer->writable) kind = BULK_READ_ONLY;
  else if (stores && low < 0) kind = BOX_BEFORE; /* measured on an H200, which reads such a box */
  if (kind == NONE) return 1;
  const int64_t *c = x->corner;
  tell_numbers(l, b, kind, x->pc, NONE, x->thread,
               (int64_t[8]){x->start, x->size, (int64_t)x->address, c[0], c[1], c[2], c[3], c[4]});
  return 0;
}

#endif
