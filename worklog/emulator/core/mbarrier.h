/* cp.async, and mbarriers with the copies that complete on them. Included by core.c alone.
 *
 * A copy reads its source when it is issued. A cp.async lands when its thread waits for it, what completes on an mbarrier
 * when a thread first waits for that, or when nothing else can run; a bulk copy to global memory reads and writes when its
 * thread waits: the latest that a GPU may. PTX ISA, "Asynchronous copy" and "mbarrier". */
#ifndef WORKLOG_MBARRIER_H
#define WORKLOG_MBARRIER_H

#include "blocks.h"
#include "boxes.h"

enum place { WIDE_PLACE = 1, GENERIC_PLACE = 2 };
enum manner { DROPS = 1, RELAXED = 2, NO_COMPLETE = 4, PARITY = 8, COUNTED = 16, COMPLETES = 32, OF_INIT = 64 };
enum { MOST_COUNT = (1 << 20) - 1, PENDING_BITS = 20 }; /* of arrivals and bytes; of a state: the phase is above */

typedef struct { /* an address: its register, enum place, and offset */
  int32_t base, kind, offset;
} Where;

typedef struct { /* of an instruction, in the launch's lists. size, count, bytes: registers, or NONE */
  Where near, far, barrier;
  int32_t source, how, number, dimensions, size, coordinates[5];
} Given;

static const Given *given_of(const Launch *l, const Instruction *i) { return (const Given *)(l->lists + i->target); }

static uint64_t address_of(const Warp *w, Where where, int lane) {
  uint64_t base = where.kind & WIDE_PLACE ? AT(uint64_t, where.base)[lane] : (uint64_t)(int64_t)AT(int32_t, where.base)[lane];
  return (where.kind & GENERIC_PLACE ? base ^ (uint64_t)1 << 60 : base) + (uint64_t)(int64_t)where.offset;
}

static int64_t value_of(const Warp *w, int32_t offset, int lane, int64_t other) {
  return offset == NONE ? other : (int64_t)AT(uint32_t, offset)[lane];
}

/* Room for one more of a list, whose size is a power of two. */
static void *grown(Launch *l, void *list, int32_t count, size_t size) {
  if (count & (count - 1)) return list;
  void *wider = realloc(list, size * (count ? 2 * (size_t)count : 1));
  if (!wider) l->status = NO_MEMORY;
  return wider;
}
#define ADD(list, number, ...)                                        \
  do {                                                                \
    void *wider = grown(l, list, number, sizeof *(list));             \
    if (wider) (list) = wider, (list)[(number)++] = (__VA_ARGS__);    \
  } while (0)

/* cp.async. */

/* The words that lanes copy: zeros from `size` bytes on, which are not read. */
static void read_words(Launch *l, Block *b, Warp *w, int32_t pc, const Given *given, uint32_t mask, Copied *out) {
  Site *source = &l->sites[given->source];
  uint64_t address[LANES], moved[LANES];
  uint32_t whole = 0, part[4] = {0};
  int32_t before = l->events_count;
  for (int k = 0, first = __builtin_ctz(mask); k < LANES; k++) {
    int lane = mask >> k & 1 ? k : first;
    address[k] = address_of(w, given->far, lane);
    int64_t size = value_of(w, given->size, lane, out->width);
    if (size >= out->width) whole |= mask & 1u << k;
    for (int j = 0; size < out->width && j < source->count; j++) part[j] |= size > 4 * j ? mask & 1u << k : 0;
    for (int j = 0; j < 4; j++) AT(uint32_t, l->scratch + 128 * j)[k] = 0;
  }
  for (int j = 0; j < 4; j++) source->values[j] = l->scratch + 128 * j;
  if (whole) {
    for (int k = 0; k < LANES; k++) moved[k] = address[whole >> k & 1 ? k : __builtin_ctz(whole)];
    global(l, b, w, source, pc, moved, whole);
  }
  for (int j = 0; j < source->count; j++) {
    Site one = *source;
    if (!part[j]) continue;
    one.count = 1, one.values[0] = source->values[j];
    for (int k = 0; k < LANES; k++) moved[k] = address[part[j] >> k & 1 ? k : __builtin_ctz(part[j])] + 4 * (uint64_t)j;
    global(l, b, w, &one, pc, moved, part[j]);
    memcpy(source->costs, one.costs, sizeof one.costs);
    source->last.known = 0;
  }
  for (int k = 0; k < LANES; k++)
    for (int j = 0; j < source->count; j++) memcpy(out->data[k] + 4 * j, &AT(uint32_t, source->values[j])[k], 4);
  for (int k = before; k < l->events_count; k++) l->events[k].space = CONSTANT;
}

static void write_cell(Launch *l, Block *b, int32_t pc, int thread, uint64_t place, int same) {
  check_flight(l, b, pc, thread, place, 1);
  check_leaving(l, b, pc, thread, place);
  order_write(l, b, &b->cells[place], SHARED_RACE, pc, thread, place * (uint64_t)l->grain, same);
  b->cells[place].agreed = 0;
  b->async->busy[place].waiter = 0;
}

static void copy(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  const Given *given = given_of(l, i);
  Async *own = async_of(l, b);
  Site *s = &l->sites[i->site];
  int warp = (int)(w - b->warps);
  Copied new = {.pc = pc, .width = 4 * s->count};
  mark_first(b, w, i->site);
  read_words(l, b, w, pc, given, mask, &new);
  for (int k = 0; k < LANES; k++) new.place[k] = address_of(w, given->near, mask >> k & 1 ? k : __builtin_ctz(mask));
  new.lanes = inside(l, b, w, s, pc, new.place, mask);
  note(l, b, w, NULL, pc, SHARED, new.lanes, new.place);
  if (!own || !new.lanes || !l->values) return;
  new.number = own->issued++;
  for (int k = 0; k < LANES; k++) new.group[k] = own->group[warp * LANES + k];
  for (int turn = 0; l->checking && turn < 2; turn++)
    for (int k = 0; k < LANES; k++)
      for (uint64_t at = 0; new.lanes >> k & 1 && at < (uint64_t)new.width; at += (uint64_t)l->grain) {
        uint64_t place = (new.place[k] + at) / (uint64_t)l->grain;
        const Stamp *last = &b->cells[place].write;
        if (turn) own->busy[place].flying = pc + 1;
        else write_cell(l, b, pc, warp * LANES + k, place, last->pc == pc && last->time == b->clock);
      }
  ADD(own->flights[warp].all, own->flights[warp].count, new);
}

/* Lanes' parts of a copy land. Accesses before its issue were checked then, and those since as to bytes in flight. */
static void land_flight(Launch *l, Block *b, int warp, Copied *f, uint32_t landing) {
  for (int k = 0; k < LANES; k++) {
    if (!(landing >> k & 1)) continue;
    memcpy(b->shared + f->place[k], f->data[k], (size_t)f->width);
    for (uint64_t at = 0; l->checking && at < (uint64_t)f->width; at += (uint64_t)l->grain) {
      uint64_t place = (f->place[k] + at) / (uint64_t)l->grain;
      b->async->busy[place].flying = 0;
      b->written[place] = 1;
      b->cells[place] = (Cell){.write = {b->base + (uint32_t)(warp * LANES + k) + 1, b->clock, f->pc}};
    }
  }
  f->lanes &= ~landing;
}

static void drop_landed(Async *own, int warp) {
  int kept = 0;
  for (int k = 0; k < own->flights[warp].count; k++)
    if (own->flights[warp].all[k].lanes) own->flights[warp].all[kept++] = own->flights[warp].all[k];
  own->flights[warp].count = kept;
}

/* mbarriers. */

static void end_phase(Launch *l, Block *b, Mbarrier *m, int32_t pc, int thread) {
  if (m->pending || m->bytes) return;
  if (m->waited < m->phase) {
    tell_numbers(l, b, NOT_WAITED, pc, NONE, thread, (int64_t[8]){m->start, m->phase, m->phase - 1});
    m->waited = m->phase;
  }
  m->phase++;
  m->pending = m->count, m->refused = 0;
  if (!l->checking || !m->gathered) return;
  m->gathered[threads_of(b) + (m - b->async->mbarriers)] = (uint32_t)m->phase;
  memcpy(m->done, m->gathered, sizeof *m->done * (size_t)b->agents);
}

static void count_down(Launch *l, Block *b, Mbarrier *m, int32_t pc, int thread, int64_t count, int how) {
  if (count > m->pending) {
    int64_t numbers[8] = {m->start, m->count, m->phase, m->bytes};
    tell_numbers(l, b, m->bytes ? ARRIVALS_BEYOND_BYTES : ARRIVALS_BEYOND, pc, m->pc, thread, numbers);
    return;
  }
  m->pending -= count;
  if (how & DROPS) m->count -= count;
  if (how & NO_COMPLETE && !m->pending)
    tell_numbers(l, b, COMPLETED_ANYWAY, pc, NONE, thread, (int64_t[8]){m->start});
  end_phase(l, b, m, pc, thread);
}

/* Land arrivals, in their order, and with each one the earlier ones of its lanes: those of an mbarrier, or those that wait
 * for the same copies as these lanes of a warp, older than group `newest`. */
static void land_tracked(Launch *l, Block *b, const Mbarrier *m, int warp, uint32_t waiting, const int64_t *newest) {
  Async *own = b->async;
  int count = own->tracked_count;
  for (int n = 0; n < count; n++) {
    Tracked *t = &own->tracked[n];
    t->due = m && &own->mbarriers[t->barrier] == m;
    for (int k = 0; !m && t->warp == warp && k < own->flights[warp].count; k++) {
      const Copied *f = &own->flights[warp].all[k];
      for (int lane = 0; lane < LANES && f->number < t->upto; lane++)
        t->due |= (f->lanes & t->lanes & waiting) >> lane & 1 && f->group[lane] < newest[lane];
    }
    for (int k = 0; t->due && k < n; k++)
      if (own->tracked[k].warp == t->warp && own->tracked[k].lanes & t->lanes) own->tracked[k].due = 1;
  }
  for (int n = 0; n < count; n++) {
    Tracked *t = &own->tracked[n];
    Mbarrier *to = &own->mbarriers[t->barrier];
    for (int j = 0; t->due && j < own->flights[t->warp].count; j++) {
      Copied *f = &own->flights[t->warp].all[j];
      uint32_t landing = f->number < t->upto ? f->lanes & t->lanes : 0;
      land_flight(l, b, t->warp, f, landing);
      for (int k = 0; l->checking && k < LANES; k++)
        for (uint64_t at = 0; landing >> k & 1 && at < (uint64_t)f->width; at += (uint64_t)l->grain) {
          uint64_t place = (f->place[k] + at) / (uint64_t)l->grain;
          bring(b, f->pc, place, t->barrier, to->phase + 1);
          if (!(waiting >> k & 1) || f->group[k] >= newest[k]) continue;
          own->busy[place].waiter = t->warp * LANES + k + 1, own->busy[place].landed = b->clock;
        }
    }
    if (!t->due) continue;
    drop_landed(own, t->warp);
    if (t->row && to->gathered) add_row(to->gathered, t->row, t->agents);
    count_down(l, b, to, t->pc, t->warp * LANES + __builtin_ctz(t->lanes), __builtin_popcount(t->lanes), 0);
    free(t->row);
  }
  own->tracked_count = 0;
  for (int n = 0; n < count; n++)
    if (!own->tracked[n].due) own->tracked[own->tracked_count++] = own->tracked[n];
}

/* Complete the copies of an mbarrier, in the order in which they were issued; whether there were any. */
static int land(Launch *l, Block *b, int number) {
  Async *own = b->async;
  int kept = 0, count = own->loads_count, before = own->tracked_count;
  land_tracked(l, b, &own->mbarriers[number], 0, 0, NULL);
  for (int n = 0; n < count; n++) {
    Box x = own->loads[n];
    Mbarrier *m = &own->mbarriers[number];
    if (x.barrier != number) {
      own->loads[kept++] = x;
      continue;
    }
    if (l->values) memcpy(b->shared + x.start, x.data, (size_t)x.size);
    if (l->values) memset(b->written + x.start / l->grain, 1, (size_t)((x.size + l->grain - 1) / l->grain));
    free(x.data);
    if (x.phase != m->phase)
      tell_numbers(l, b, BYTES_UNEXPECTED, x.pc, m->expected_pc, x.thread, (int64_t[8]){m->start, x.phase, x.size});
    m->bytes -= x.size;
    end_phase(l, b, m, x.pc, x.thread);
  }
  own->loads_count = kept;
  return kept < count || own->tracked_count < before;
}

static int outside_shared(Launch *l, Block *b, int32_t pc, int thread, int64_t start) {
  int within = start >= 0 && start <= l->shared_size - 8;
  if (within && start % 8 == 0) return 0;
  tell_numbers(l, b, within ? MBARRIER_MISALIGNED : MBARRIER_OUTSIDE, pc, NONE, thread, (int64_t[8]){start, l->shared_size});
  return 1;
}

static Mbarrier *known_at(const Block *b, int64_t start) {
  for (int k = b->async->mbarriers_count - 1; k >= 0; k--)
    if (b->async->mbarriers[k].start == start && b->async->mbarriers[k].alive) return &b->async->mbarriers[k];
  return NULL;
}

/* The mbarrier at a byte of shared memory; a finding where there is none that the thread may use. */
static Mbarrier *find(Launch *l, Block *b, int32_t pc, int thread, int64_t start) {
  if (!async_of(l, b) || outside_shared(l, b, pc, thread, start)) return NULL;
  Mbarrier *m = known_at(b, start);
  if (!m) tell_numbers(l, b, NO_MBARRIER, pc, NONE, thread, (int64_t[8]){start});
  else if (l->checking && !knows(l, b, thread, m->owner, m->clock))
    tell_numbers(l, b, MBARRIER_UNSEEN, pc, m->pc, thread, (int64_t[8]){start});
  return m;
}

static void initialise(Launch *l, Block *b, int32_t pc, int thread, int64_t start, int64_t count) {
  Async *own = async_of(l, b);
  if (!own || outside_shared(l, b, pc, thread, start)) return;
  Mbarrier *old = known_at(b, start), new = {.start = start, .count = count, .pending = count};
  if (old) tell_numbers(l, b, MBARRIER_AGAIN, pc, old->pc, thread, (int64_t[8]){start});
  if (old) old->alive = 0;
  if (count < 1 || count > MOST_COUNT) tell_numbers(l, b, MBARRIER_COUNT, pc, NONE, thread, (int64_t[8]){start, count});
  new.owner = thread, new.pc = pc, new.alive = 1, new.clock = b->clock;
  int wanted = threads_of(b) + own->mbarriers_count + 1, agents = wanted + 7;
  if (l->checking) {
    for (int k = 0; wanted > b->agents && k < own->mbarriers_count; k++) {
      widen(l, b, &own->mbarriers[k].gathered, agents);
      widen(l, b, &own->mbarriers[k].done, agents);
    }
    if (wanted > b->agents) make_room(l, b, agents);
    if (l->status) return;
    new.gathered = room(l, sizeof *new.gathered * (size_t)b->agents);
    new.done = room(l, sizeof *new.done * (size_t)b->agents);
  }
  ADD(own->mbarriers, own->mbarriers_count, new);
}

static void expect(Launch *l, Block *b, Mbarrier *m, int32_t pc, int thread, int64_t bytes) {
  m->bytes += bytes;
  if (bytes > 0) m->expected_pc = pc, m->expected_thread = thread;
  if (llabs(m->bytes) > MOST_COUNT)
    tell_numbers(l, b, BYTES_TOO_MANY, pc, NONE, thread, (int64_t[8]){m->start, MOST_COUNT});
  end_phase(l, b, m, pc, thread);
}

/* Lanes arrive. Of those that arrive together, none or the last one completes the phase; else one after the other. */
static void arrive(Launch *l, Block *b, Warp *w, Mbarrier *m, int32_t pc, const Instruction *i, uint32_t lanes) {
  const Given *given = given_of(l, i);
  int first = (int)(w - b->warps) * LANES;
  int64_t whole = 0;
  for (int k = 0; k < LANES; k++) whole += lanes >> k & 1 ? value_of(w, given->number, k, 1) : 0;
  for (uint32_t rest = lanes; rest;) {
    uint32_t group = whole <= m->pending ? rest : rest & -rest;
    int64_t count = 0;
    for (int k = 0; k < LANES; k++) {
      if (!(group >> k & 1)) continue;
      if (given->size != NONE) {
        m->bytes += value_of(w, given->size, k, 0);
        m->expected_pc = pc, m->expected_thread = first + k;
      }
      if (l->checking && m->gathered && !(given->how & RELAXED)) gather(l, b, m->gathered, first + k);
      int64_t pending = m->pending > count ? m->pending - count : 0;
      if (i->d != NONE) AT(uint64_t, i->d)[k] = (uint64_t)m->phase << PENDING_BITS | (uint64_t)pending;
      count += value_of(w, given->number, k, 1);
    }
    count_down(l, b, m, pc, first + __builtin_ctz(group), count, given->how);
    rest &= ~group;
  }
}

static void wait_for(Launch *l, Block *b, Warp *w, int number, int32_t pc, const Instruction *i, uint32_t lanes) {
  const Given *given = given_of(l, i);
  int first = (int)(w - b->warps) * LANES, told = 0;
  uint32_t done = 0;
  land(l, b, number);
  Mbarrier *m = &b->async->mbarriers[number];
  for (int k = 0; k < LANES; k++) {
    if (!(lanes >> k & 1)) continue;
    if (given->how & PARITY) {
      done |= (uint32_t)((AT(uint32_t, i->b)[k] & 1) != (m->phase & 1)) << k;
      continue;
    }
    int64_t phase = (int64_t)(AT(uint64_t, i->b)[k] >> PENDING_BITS);
    done |= (uint32_t)(phase < m->phase) << k;
    if (told || (phase <= m->phase && phase >= m->phase - 1)) continue;
    tell_numbers(l, b, WRONG_STATE, pc, NONE, first + k, (int64_t[8]){m->start, m->phase, phase});
    told = 1;
  }
  *AT(uint32_t, i->d) = (*AT(uint32_t, i->d) & ~lanes) | done;
  w->refused = (w->refused & ~lanes) | (lanes & ~done);
  m->refused |= done != lanes;
  if (done) m->waited = m->phase, note(l, b, w, NULL, pc, SHARED, done, NULL);
  for (int k = 0; l->checking && m->done && !(given->how & RELAXED) && k < LANES; k++)
    if (done >> k & 1) learn(l, b, first + k, m->done);
}

/* cp.async.mbarrier.arrive: lanes arrive once their cp.async have landed. COUNTED (noinc): the arrivals are among those
 * expected; else each one adds one to them first. */
static void track(Launch *l, Block *b, Warp *w, int number, int32_t pc, const Instruction *i, uint32_t lanes) {
  Async *own = b->async;
  int warp = (int)(w - b->warps);
  Tracked new = {.barrier = number, .pc = pc, .warp = warp, .agents = b->agents, .lanes = lanes, .upto = own->issued};
  if (!(given_of(l, i)->how & COUNTED)) own->mbarriers[number].pending += __builtin_popcount(lanes);
  if (l->checking) new.row = room(l, sizeof *new.row * (size_t)b->agents);
  for (int k = 0; new.row && k < LANES; k++)
    if (lanes >> k & 1) gather(l, b, new.row, warp * LANES + k);
  ADD(own->tracked, own->tracked_count, new);
}

#endif
