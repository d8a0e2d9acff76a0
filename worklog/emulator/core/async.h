/* Bulk copies, which move boxes of tensors, and the instructions of asynchronous copies. Included
 * by core.c alone. */
#ifndef WORKLOG_ASYNC_H
#define WORKLOG_ASYNC_H

#include "mbarrier.h"

/* PTX ISA, "cp.async.bulk": sizes and addresses are multiples of 16; with a tensor map, in shared
 * memory of 128. A box starts at a multiple of 16 bytes along dimension 0: an H200 ends another
 * copy with an illegal instruction. */
enum { BULK_GRAIN = 16, TENSOR_GRAIN = 128, MAP_SIZE = 128 };

/* Of a box along dimension 0: the elements that exist, and their offset in the tensor, in bytes */
typedef struct {
  int64_t first, count, offset;
} Strip;

/* The number of strips in a box. */
static int64_t strips_of(const Layout *y) {
  return y->counts[1] * y->counts[2] * y->counts[3] * y->counts[4];
}

/* A strip of a box. */
static Strip strip_of(const Box *x, int64_t number) {
  const Layout *y = &x->layout;
  int64_t first = x->corner[0] < 0 ? -x->corner[0] : 0, end = y->shape[0] - x->corner[0];
  uint64_t offset = 0; /* which may wrap for what is not in the tensor */
  end = end > y->counts[0] ? y->counts[0] : end;
  for (int d = 1; d < y->dimensions; number /= y->counts[d++]) {
    int64_t index = x->corner[d] + y->steps[d] * (number % y->counts[d]);
    if (index < 0 || index >= y->shape[d])
      end = first;
    offset += (uint64_t)index * (uint64_t)y->strides[d];
  }
  offset += (uint64_t)((x->corner[0] + first) * y->item);
  return (Strip){first, end > first ? end - first : 0, (int64_t)offset};
}

/* Bytes from the tensor's first one to the end of the last one that exists in the box. */
static double reach_of(const Box *x) {
  double out = x->layout.item;
  for (int d = 0; d < x->layout.dimensions; d++) {
    int64_t most = x->layout.shape[d] - 1 - x->corner[d],
            last = most < 0 ? NONE : most / x->layout.steps[d];
    if (last >= x->layout.counts[d])
      last = x->layout.counts[d] - 1;
    int64_t index = x->corner[d] + x->layout.steps[d] * last;
    if (last < 0 || index < 0)
      return 0;
    out += (double)index * (double)x->layout.strides[d];
  }
  return out;
}

/* A box's bytes from global memory to shared memory, or back: what is outside of the tensor isn't
 * written. CUTLASS's Swizzle: bits of an address in shared memory are exchanged with those three
 * higher. */
static void move_box(Launch *l, const Box *x, uint8_t *shared, int load) {
  const Layout *y = &x->layout;
  uint8_t *data = zeros(l, (size_t)x->size + 1); /* in the order of the tensor */
  uint64_t bits = y->swizzle ? (uint64_t)(y->swizzle / 16 - 1) << 4 : 0, start = (uint64_t)x->start;
  for (int64_t k = 0; data && load && y->nan && k < x->size; k++)
    data[k] = k % y->item == y->item - 1 ? 0x7F : 0xFF;
  for (int turn = 0; data && turn < 2; turn++) {
    for (int64_t k = 0; turn == load && k < x->size; k += BULK_GRAIN) {
      uint64_t address = start + (uint64_t)k, place = (address ^ (address >> 3 & bits)) - start;
      memcpy(load ? shared + place : data + k, load ? data + k : shared + place, BULK_GRAIN);
    }
    for (int64_t k = 0; turn != load && k < strips_of(y); k++) {
      Strip s = strip_of(x, k);
      uint8_t *own = data + (k * y->counts[0] + s.first) * y->item;
      size_t size = (size_t)(s.count * y->item);
      if (s.count && x->buffer->data) {
        uint8_t *far = x->buffer->data + (x->address - x->buffer->base) + s.offset;
        memcpy(load ? own : far, load ? far : own, size);
      } else if (s.count && load) {
        memset(own, 0, size);
      }
    }
  }
  free(data);
}

/* The traffic of a box: its elements are one request. */
static void count_box(Launch *l, Site *s, const Box *x) {
  const Layout *y = &x->layout;
  int64_t at = 0, item = y->item, rows = strips_of(y), most = y->counts[0] * item / 32 + 2;
  uint64_t *sectors = zeros(l, sizeof *sectors * (size_t)(rows * most + 1));
  int64_t *costs = s->last.costs;
  memset(costs, 0, sizeof s->last.costs);
  for (int64_t k = 0; sectors && k < rows; k++) {
    Strip strip = strip_of(x, k);
    uint64_t first = x->address + (uint64_t)strip.offset,
             last = first + (uint64_t)((strip.count - 1) * item);
    for (uint64_t sector = first / 32; strip.count && sector <= last / 32; sector++)
      sectors[at++] = sector;
    costs[BYTES] += strip.count * item;
  }
  costs[REQUESTS] = 1;
  costs[SECTORS] = distinct(sectors, (int)at);
  for (int64_t k = 0; k < at; k++)
    sectors[k] /= 4;
  costs[LINES] = distinct(sectors, (int)at);
  for (int k = 0; k < 6; k++)
    s->costs[k] += costs[k];
  free(sectors);
}

/* The layout that a tensor map at an address gives; 0 if there is none of these dimensions that the
 * emulator has made. */
static int read_map(Launch *l, uint64_t address, int dimensions, Box *out) {
  const Buffer *holder = buffer_at(l, address);
  uint64_t words[3];
  if (!holder || !holder->data || address % 64 || !contains(holder, address, MAP_SIZE))
    return 0;
  memcpy(words, holder->data + (address - holder->base), sizeof words);
  if (memcmp(words, "worklog ", 8) || words[2] >= (uint64_t)l->layouts_count)
    return 0;
  out->address = words[1];
  out->layout = l->layouts[words[2]];
  return out->layout.dimensions == dimensions;
}

/* Whether the places of a box are valid; else they are reported. along: what must be a multiple of
 * 16 bytes, too. */
static int check_box(Launch *l, Block *b, Box *x, int tensor, int64_t along, int stores) {
  int64_t unit = tensor ? TENSOR_GRAIN : BULK_GRAIN, low = 0;
  int32_t kind = NONE;
  for (int d = 0; d < x->layout.dimensions; d++)
    low = x->corner[d] < low ? x->corner[d] : low;
  x->buffer = buffer_at(l, x->address);
  if (x->start & (unit - 1) || x->address % BULK_GRAIN || along % BULK_GRAIN)
    kind = tensor && along % BULK_GRAIN ? BOX_MISALIGNED : BULK_MISALIGNED;
  else if (x->start < 0 || x->start >= l->shared_size ||
           x->start % l->shared_stride > l->own_size - x->size)
    kind = BULK_OUTSIDE_SHARED;
  else if (!x->buffer || reach_of(x) > (double)(x->buffer->base + x->buffer->size - x->address))
    kind = BULK_OUTSIDE;
  else if (stores && !x->buffer->writable)
    kind = BULK_READ_ONLY;
  else if (stores && low < 0)
    kind = BOX_BEFORE; /* measured on an H200, which reads such a box */
  if (kind == NONE)
    return 1;
  const int64_t *c = x->corner;
  const int64_t far = (int64_t)x->address;
  report_thread(l, b, kind, x->pc, NONE, x->thread, l->own_size,
                NUMBERS(x->start, x->size, far, c[0], c[1], c[2], c[3], c[4]));
  return 0;
}

/* The box of a lane: bytes one after the other, or what a tensor map says. Whether it is valid. */
static int box_of(Launch *l, Block *b, const Warp *w, int32_t pc, const Instruction *i, int lane,
                  Box *x) {
  const AsyncOperands *operands = operands_of(l, i);
  int thread = first_of(b, w) + lane, tensor = operands->dimensions;
  int64_t along = value_of(w, operands->coordinates[0], lane, 0),
          pieces = (along + BULK_GRAIN - 1) / BULK_GRAIN;
  const Layout bytes = {1,
                        BULK_GRAIN,
                        0,
                        0,
                        {pieces, 1, 1, 1, 1},
                        {BULK_GRAIN},
                        {pieces, 1, 1, 1, 1},
                        {1, 1, 1, 1, 1}};
  *x = (Box){.layout = bytes};
  x->address = address_of(w, operands->global, lane);
  if (tensor && !read_map(l, x->address, tensor, x)) {
    report_thread(l, b, NO_TENSOR_MAP, pc, NONE, thread, 0, NULL);
    l->status = ABORTED;
    return 0;
  }
  for (int d = 0; d < tensor; d++)
    x->corner[d] = AT(int32_t, operands->coordinates[d])[lane];
  x->size = x->layout.counts[0] * strips_of(&x->layout) * x->layout.item;
  x->pc = pc;
  x->thread = thread;
  x->start = (int64_t)shared_of(l, b, w, operands->shared, lane, 1);
  x->group = b->async->bulk_group[thread];
  if (!check_box(l, b, x, tensor, tensor ? x->corner[0] * x->layout.item : along,
                 i->op == BULK_STORE))
    return 0;
  Site *source = &l->sites[operands->source];
  if (l->counting)
    count_box(l, source, x);
  const uint64_t step[LANES] = {
      (uint64_t)x->start,
      x->address + (uint64_t)strip_of(x, 0).offset,
      (uint64_t)strips_of(&x->layout),
      (uint64_t)(x->layout.counts[0] * x->layout.item),
      (uint64_t)x->layout.strides[1],
  };
  note(l, b, w, source, pc, GLOBAL, 1u << lane, step);
  return 1;
}

/* The copy of a lane; a multicast has one in each block of the cluster that its mask names. */
static void load_boxes(Launch *l, Block *b, const Warp *w, const Instruction *i, int lane, Box x) {
  const AsyncOperands *operands = operands_of(l, i);
  uint64_t barrier = shared_of(l, b, w, operands->barrier, lane, 8),
           stride = (uint64_t)l->shared_stride;
  int cast = operands->size != NONE, mask = cast ? AT(uint16_t, operands->size)[lane] : 1;
  for (int rank = 0; mask >> rank; rank++) {
    if (!(mask >> rank & 1))
      continue;
    if (cast)
      x.start = rank * (int64_t)stride + x.start % (int64_t)stride;
    if (cast && barrier < NOWHERE)
      barrier = (uint64_t)rank * stride + barrier % stride;
    const int64_t far = (int64_t)x.address;
    if (rank >= l->blocks)
      report_thread(l, b, BULK_OUTSIDE_SHARED, x.pc, NONE, x.thread, l->own_size,
                    NUMBERS(x.start, x.size, far));
    int there = (int)(x.start / l->shared_stride);
    if (rank < l->blocks && l->checking && b->left >> there & 1)
      report_lanes(l, b, w, BLOCK_LEFT, x.pc, 1u << lane, 0);
    Mbarrier *m = rank < l->blocks ? find(l, b, x.pc, x.thread, (int64_t)barrier) : NULL;
    if (!m)
      continue;
    if (!m->fenced)
      report_thread(l, b, UNFENCED_INIT, x.pc, m->pc, x.thread, 0, NUMBERS(m->start));
    m->fenced = 1; /* reported once: libcu++ itself leaves the fence out */
    x.barrier = (int32_t)(m - b->async->mbarriers);
    x.phase = m->phase;
    x.data = zeros(l, (size_t)x.size + 1);
    if (!x.data)
      return;
    move_box(l, &x, x.data, 1);
    FOR_CELLS(place, (uint64_t)x.start, l->checking ? (uint64_t)x.size : 0, l->grain) {
      order(l, b, &b->shared, place, x.pc, x.thread, place * (uint64_t)l->grain, 1, 0);
      publish_cell(b, x.pc, place, x.barrier, m->phase + 1);
    }
    append(l, &b->chunks, &b->async->loads, &b->async->loads_count, &x, sizeof x);
  }
}

/* Complete the copies of these lanes of a warp to global memory, except those of their `count`
 * newest groups. */
static void wait_stores(Launch *l, Block *b, int warp, uint32_t lanes, int count) {
  Async *own = b->async;
  int kept = 0;
  for (int n = 0; n < own->stores_count; n++) {
    Box x = own->stores[n];
    if (x.thread / LANES != warp || !(lanes >> x.thread % LANES & 1) ||
        x.group >= own->bulk_group[x.thread] - count) {
      own->stores[kept++] = x;
      continue;
    }
    move_box(l, &x, b->shared.data + x.start, 0);
    if (l->checking)
      end_reading(l, b, x.pc, x.thread, (uint64_t)x.start, (uint64_t)x.size);
    l->changes++;
  }
  own->stores_count = kept;
}

/* At the end of a block, whose shared memory is gone then. */
static void finish_copies(Launch *l, Block *b) {
  for (int n = 0; b->async && n < b->async->stores_count; n++) {
    const Box *x = &b->async->stores[n];
    report_thread(l, b, STORE_UNWAITED, x->pc, NONE, x->thread, 0, NULL);
    move_box(l, x, b->shared.data + x->start, 0);
  }
  for (int n = 0; b->async && l->checking && n < b->async->loads_count; n++) {
    const Box *x = &b->async->loads[n];
    report_thread(l, b, LOAD_UNWAITED, x->pc, NONE, x->thread, 0, NULL);
  }
}

/* Instructions. */

/* An instruction of asynchronous copies or mbarriers. */
static int asynchronous(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i,
                        uint32_t mask) {
  int warp = number_of_warp(b, w), number = i->target == NONE ? 0 : operands_of(l, i)->number;
  Async *own = async_of(l, b);
  if (!own)
    return STOP;
  switch (i->op) {
  case COPY:
    copy(l, b, w, pc, i, mask);
    break;
  case COPY_WAIT:
    wait_copies(l, b, w, mask, number);
    note(l, b, w, NULL, pc, SHARED, mask, NULL);
    break;
  case BULK_WAIT:
    wait_stores(l, b, warp, mask, number);
    break;
  case FENCE_PROXY:
    for (int k = 0; k < own->mbarriers_count; k++) {
      const Mbarrier *m = &own->mbarriers[k];
      own->mbarriers[k].fenced |= m->owner / LANES == warp && mask >> m->owner % LANES & 1;
    }
    if (operands_of(l, i)->flags & OF_INIT)
      return fence(l, b, w, 1, mask);
    FOR_LANES(k, mask)
      own->proxied[warp * LANES + k] = b->clock;
    tick(b);
    break;
  case COPY_COMMIT:
  case BULK_COMMIT:
    FOR_LANES(k, mask)
      (i->op == COPY_COMMIT ? own->group : own->bulk_group)[warp * LANES + k]++;
    break;
  case PENDING_COUNT:
    FOR_LANES(k, mask)
      AT(uint32_t, i->d)[k] = (uint32_t)AT(uint64_t, i->a)[k] & MOST_COUNT;
    break;
  case BULK_LOAD:
  case BULK_STORE:
    mark_first(b, w, i->site);
    FOR_LANES(k, mask) {
      Box x;
      if (l->status || !box_of(l, b, w, pc, i, k, &x))
        continue;
      if (i->op == BULK_LOAD)
        load_boxes(l, b, w, i, k, x);
      if (i->op == BULK_LOAD)
        continue;
      if (l->checking)
        begin_reading(l, b, pc, x.thread, (uint64_t)x.start, (uint64_t)x.size);
      append(l, &b->chunks, &own->stores, &own->stores_count, &x, sizeof x);
    }
    break;
  default:
    of_mbarrier(l, b, w, pc, i, mask);
  }
  return l->status ? STOP : NEXT;
}

#endif
