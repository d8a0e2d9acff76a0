/* Bulk copies, and the instructions of asynchronous copies and mbarriers. Included by core.c alone. */
#ifndef WORKLOG_ASYNC_H
#define WORKLOG_ASYNC_H

#include "mbarrier.h"

/* Bulk copies. */

/* A box of a lane; what a launch has of tensor maps says which. */
static int box_of(Launch *l, Block *b, const Warp *w, int32_t pc, const Instruction *i, int lane, Box *x) {
  const Given *given = given_of(l, i);
  int thread = (int)(w - b->warps) * LANES + lane, tensor = given->dimensions;
  uint64_t far = address_of(w, given->far, lane);
  int64_t along = value_of(w, given->coordinates[0], lane, 0), pieces = (along + BULK_GRAIN - 1) / BULK_GRAIN;
  *x = (Box){.layout = {1, BULK_GRAIN, 0, 0, {pieces, 1, 1, 1, 1}, {BULK_GRAIN}, {pieces, 1, 1, 1, 1}, {1, 1, 1, 1, 1}}};
  x->address = far;
  if (tensor && !read_map(l, far, tensor, x)) {
    tell_numbers(l, b, NO_TENSOR_MAP, pc, NONE, thread, (int64_t[8]){0});
    l->status = ABORTED;
    return 0;
  }
  for (int d = 0; d < tensor; d++) x->corner[d] = AT(int32_t, given->coordinates[d])[lane];
  x->size = x->layout.counts[0] * strips_of(&x->layout) * x->layout.item;
  x->pc = pc, x->thread = thread, x->start = (int64_t)address_of(w, given->near, lane);
  x->group = async_of(l, b) ? b->async->bulk_group[thread] : 0;
  if (!check_box(l, b, x, tensor, tensor ? x->corner[0] * x->layout.item : along, i->op == BULK_STORE)) return 0;
  Site *source = &l->sites[given->source];
  if (l->counting) count_box(l, source, x);
  uint64_t start = far + (uint64_t)strip_of(x, 0).offset, bytes = (uint64_t)(x->layout.counts[0] * x->layout.item);
  note(l, b, w, source, pc, GLOBAL, 1u << lane, (uint64_t[LANES]){
    (uint64_t)x->start, start, (uint64_t)strips_of(&x->layout), bytes, (uint64_t)x->layout.strides[1]});
  return 1;
}

static void load_box(Launch *l, Block *b, const Warp *w, const Instruction *i, int lane, Box *x) {
  int64_t start = (int64_t)address_of(w, given_of(l, i)->barrier, lane);
  Mbarrier *m = find(l, b, x->pc, x->thread, start);
  if (!m) return;
  if (!m->fenced) tell_numbers(l, b, UNFENCED_INIT, x->pc, m->pc, x->thread, (int64_t[8]){start});
  m->fenced = 1; /* told once: libcu++ itself leaves the fence out */
  x->barrier = (int32_t)(m - b->async->mbarriers), x->phase = m->phase, x->data = read_box(l, x);
  if (!x->data) return;
  for (uint64_t at = 0; l->checking && at < (uint64_t)x->size; at += (uint64_t)l->grain) {
    uint64_t place = ((uint64_t)x->start + at) / (uint64_t)l->grain;
    write_cell(l, b, x->pc, x->thread, place, 0);
    bring(b, x->pc, place, x->barrier, m->phase + 1);
  }
  ADD(b->async->loads, b->async->loads_count, *x);
}

static void store_box(Launch *l, Block *b, const Box *x) {
  if (!async_of(l, b)) return;
  if (l->checking) drain(l, b, x->pc, x->thread, (uint64_t)x->start, (int)x->size);
  ADD(b->async->stores, b->async->stores_count, *x);
}

/* Complete the copies of these lanes of a warp to global memory, except those of their `count` newest groups. */
static void wait_stores(Launch *l, Block *b, int warp, uint32_t lanes, int count) {
  Async *own = async_of(l, b);
  int kept = 0;
  for (int n = 0; own && n < own->stores_count; n++) {
    Box x = own->stores[n];
    if (x.thread / LANES != warp || !(lanes >> x.thread % LANES & 1) || x.group >= own->bulk_group[x.thread] - count) {
      own->stores[kept++] = x;
      continue;
    }
    write_box(l, b, &x);
    if (l->checking) drained(l, b, x.pc, x.thread, (uint64_t)x.start, (int)x.size);
    l->changes++;
  }
  if (own) own->stores_count = kept;
}

/* At the end of a block, whose shared memory is gone then. */
static void finish_copies(Launch *l, Block *b) {
  for (int n = 0; b->async && n < b->async->stores_count; n++) {
    const Box *x = &b->async->stores[n];
    tell_numbers(l, b, STORE_UNWAITED, x->pc, NONE, x->thread, (int64_t[8]){0});
    write_box(l, b, x);
  }
  if (b->async) b->async->stores_count = 0;
}

/* Land all copies in flight, where no thread can run; whether there were any. */
static int stir_copies(Launch *l, Block *b) {
  int any = 0;
  for (int k = 0; b->async && k < b->async->mbarriers_count; k++) any |= land(l, b, k);
  return any;
}

/* What the mbarriers of a block lack that threads wait for; or a finding where one lacks nothing but the right number of
 * bytes. The status of the launch. */
static int explain(Launch *l, const Block *b) {
  for (int k = 0; b->async && k < b->async->mbarriers_count; k++) {
    const Mbarrier *m = &b->async->mbarriers[k];
    int64_t numbers[8] = {m->start, m->phase, llabs(m->bytes), m->pending, m->count, m->bytes};
    if (m->alive && m->bytes && !m->pending) {
      tell_numbers(l, b, m->bytes > 0 ? BYTES_MISSING : BYTES_SURPLUS, m->expected_pc, NONE, m->expected_thread, numbers);
      return ABORTED;
    }
    if (m->alive && m->refused) tell_numbers(l, b, PHASE_LACKS, k, NONE, 0, numbers);
  }
  return ENDLESS;
}

/* Instructions. */

static void wait_copies(Launch *l, Block *b, Warp *w, uint32_t mask, int count) {
  Async *own = async_of(l, b);
  int warp = (int)(w - b->warps);
  int64_t newest[LANES];
  if (!own) return;
  for (int k = 0; k < LANES; k++) newest[k] = (int64_t)own->group[warp * LANES + k] - count;
  land_tracked(l, b, NULL, warp, mask, newest);
  for (int n = 0; n < own->flights[warp].count; n++) {
    Copied *f = &own->flights[warp].all[n];
    uint32_t landing = 0;
    for (int k = 0; k < LANES; k++) landing |= (uint32_t)(f->group[k] < newest[k]) << k;
    land_flight(l, b, warp, f, landing & mask & f->lanes);
  }
  drop_landed(own, warp);
}

static void fence_mbarriers(Launch *l, Block *b, const Warp *w, uint32_t mask, int of_init) {
  Async *own = b->async;
  for (int k = 0; k < own->mbarriers_count; k++)
    own->mbarriers[k].fenced |= own->mbarriers[k].owner / LANES == w - b->warps && mask >> own->mbarriers[k].owner % LANES & 1;
  if (!of_init) fence_proxy(l, b, w, mask);
}

static void of_mbarrier(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  const Given *given = given_of(l, i);
  int first = (int)(w - b->warps) * LANES;
  int64_t start[LANES];
  for (int k = 0; k < LANES; k++) {
    if (!(mask >> k & 1)) continue;
    start[k] = (int64_t)address_of(w, given->near, k);
    if (i->op == INITIALISE) initialise(l, b, pc, first + k, start[k], value_of(w, given->number, k, 0));
    if (i->op == ARRIVE_AT && i->d != NONE) AT(uint64_t, i->d)[k] = 0;
  }
  if (i->op == WAIT_FOR) *AT(uint32_t, i->d) |= mask;
  for (uint32_t rest = i->op == INITIALISE ? 0 : mask, lanes; rest; rest &= ~lanes) {
    lanes = 0;
    for (int k = __builtin_ctz(rest), from = k; k < LANES; k++) lanes |= (uint32_t)(rest >> k & 1 && start[k] == start[from]) << k;
    int last = 31 - __builtin_clz(lanes);
    Mbarrier *m = find(l, b, pc, first + last, start[last]);
    if (!m) continue;
    int number = (int)(m - b->async->mbarriers);
    if (i->op == INVALIDATE) m->alive = 0;
    else if (i->op == ARRIVE_AT) arrive(l, b, w, m, pc, i, lanes);
    else if (i->op == WAIT_FOR) wait_for(l, b, w, number, pc, i, lanes);
    else if (i->op == TRACK) track(l, b, w, number, pc, i, lanes);
    for (int k = 0; i->op == EXPECT && k < LANES; k++)
      if (lanes >> k & 1) expect(l, b, m, pc, first + k, value_of(w, given->number, k, 0) * (given->how & COMPLETES ? -1 : 1));
  }
  if (i->op == ARRIVE_AT || i->op == TRACK) tick(b);
}

static int asynchronous(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  int warp = (int)(w - b->warps), number = i->target == NONE ? 0 : given_of(l, i)->number;
  Async *own = async_of(l, b);
  if (!own) return STOP;
  switch (i->op) {
  case COPY: copy(l, b, w, pc, i, mask); break;
  case COPY_WAIT:
    wait_copies(l, b, w, mask, number);
    note(l, b, w, NULL, pc, SHARED, mask, NULL);
    break;
  case BULK_WAIT: wait_stores(l, b, warp, mask, number); break;
  case FENCE_PROXY:
    fence_mbarriers(l, b, w, mask, given_of(l, i)->how & OF_INIT);
    if (given_of(l, i)->how & OF_INIT) fence(l, b, w, pc, &(Instruction){.op = 1}, mask);
    break;
  case COPY_COMMIT:
  case BULK_COMMIT:
    for (int k = 0; k < LANES; k++)
      (i->op == COPY_COMMIT ? own->group : own->bulk_group)[warp * LANES + k] += mask >> k & 1;
    break;
  case RANK:
    for (int k = 0; k < LANES; k++) {
      if (!(mask >> k & 1)) continue;
      uint32_t rank = AT(uint32_t, i->b)[k];
      if (rank) tell_numbers(l, b, WRONG_RANK, pc, NONE, warp * LANES + k, (int64_t[8]){0, rank});
      if (number == 8) AT(uint64_t, i->d)[k] = AT(uint64_t, i->a)[k];
      else AT(uint32_t, i->d)[k] = AT(uint32_t, i->a)[k];
    }
    break;
  case PENDING_COUNT:
    for (int k = 0; k < LANES; k++)
      if (mask >> k & 1) AT(uint32_t, i->d)[k] = (uint32_t)AT(uint64_t, i->a)[k] & MOST_COUNT;
    break;
  case BULK_LOAD:
  case BULK_STORE:
    mark_first(b, w, i->site);
    for (int k = 0; k < LANES && !l->status; k++) {
      Box x;
      if (!(mask >> k & 1) || !box_of(l, b, w, pc, i, k, &x)) continue;
      if (i->op == BULK_LOAD) load_box(l, b, w, i, k, &x);
      else store_box(l, b, &x);
    }
    if (l->status) return STOP;
    break;
  default: of_mbarrier(l, b, w, pc, i, mask);
  }
  return l->status ? STOP : NEXT;
}

#endif
