/* Runs warps and blocks: see core.h. */
#include "tensor.h"
#include "warp.h"

/* Running. */

/* Of active lanes, each the expression of lane k. */
#define EACH(type, expression)                             \
  do {                                                     \
    type *d = AT(type, i->d);                              \
    if (mask == FULL) {                                    \
      _Pragma("GCC ivdep")                                 \
      for (int k = 0; k < LANES; k++) d[k] = (expression); \
    } else {                                               \
      for (int k = 0; k < LANES; k++)                      \
        if (mask >> k & 1) d[k] = (expression);            \
    }                                                      \
  } while (0)
#define TEST(expression)                                                            \
  do {                                                                              \
    uint32_t bits = 0;                                                              \
    for (int k = 0; k < LANES; k++) bits |= (uint32_t)((expression) != 0) << k;     \
    *AT(uint32_t, i->d) = (*AT(uint32_t, i->d) & ~mask) | (bits & mask);            \
  } while (0)

#define least(a, b) _Generic((a), float: least_float, double: least_double)(a, b)
/* IEEE minimumNumber: the number if the other operand is NaN, also a signalling one; -0 is below +0. */
#define LEAST(name, type)                               \
  static inline type name(type a, type b) {             \
    if (a == 0 && b == 0) return signbit(a) ? a : b;    \
    return isnan(a) ? b : isnan(b) || a < b ? a : b;    \
  }
LEAST(least_float, float)
LEAST(least_double, double)

static inline uint32_t bfi(uint32_t a, uint32_t b, uint32_t position, uint32_t length) {
  position &= 255, length &= 255;
  uint32_t ones = length < 32 ? (1u << length) - 1 : FULL, field = position < 32 ? ones << position : 0;
  return ((position < 32 ? a << position : 0) & field) | (b & ~field);
}

static inline void alu(Warp *w, const Instruction *i, uint32_t mask) {
  switch (i->op) {
#include "ops.inc"
  default: __builtin_unreachable();
  }
}

/* Two words as one of twice the width, and back; c: the second word's register. */
static int pack(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  (void)l, (void)b, (void)pc;
  for (int k = 0; k < LANES; k++) {
    if (!(mask >> k & 1)) continue;
    if (i->kind == PACK && i->op == 8) {
      AT(uint64_t, i->d)[k] = AT(uint32_t, i->a)[k] | (uint64_t)AT(uint32_t, i->c)[k] << 32;
    } else if (i->kind == PACK) {
      AT(uint32_t, i->d)[k] = AT(uint16_t, i->a)[k] | (uint32_t)AT(uint16_t, i->c)[k] << 16;
    } else if (i->op == 8) {
      uint64_t x = AT(uint64_t, i->a)[k];
      if (i->d != NONE) AT(uint32_t, i->d)[k] = (uint32_t)x;
      if (i->c != NONE) AT(uint32_t, i->c)[k] = (uint32_t)(x >> 32);
    } else {
      uint32_t x = AT(uint32_t, i->a)[k];
      if (i->d != NONE) AT(uint16_t, i->d)[k] = (uint16_t)x;
      if (i->c != NONE) AT(uint16_t, i->c)[k] = (uint16_t)(x >> 16);
    }
  }
  return NEXT;
}

static int barrier(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  (void)l, (void)b, (void)i;
  w->waiting |= mask;
  w->arrivals[w->arrivals_count++] = (Path){pc, mask};
  return PARKED;
}

/* Run a warp until it exits, waits or has executed `left` instructions; what is left. A handler runs for the lanes whose
 * guard holds, if there are any. It says how they go on: with the next instruction; not now, then it has put them
 * somewhere; or the launch ends. */
static int64_t run_warp(Launch *l, Block *b, Warp *w, int64_t left) {
  w->entry = left;
  while (left > 0) {
    Path path = w->held_count ? met(l, b, w) : (Path){NONE, 0};
    int ready = path.mask != 0; /* these lanes have met */
    if (!ready && !w->paths_count) break;
    if (!ready) path = w->paths[--w->paths_count];
    int32_t pc = path.pc, next = w->paths_count ? w->paths[w->paths_count - 1].pc : INT32_MAX;
    uint32_t lanes = path.mask;
    while (lanes) {
      const Instruction *i = &l->code[pc];
      if (i->block != NONE) {
        if (!ready && (pc >= next || left <= 0)) {
          push(w, pc, lanes);
          break;
        }
        l->executed[2 * i->block]++;
        l->executed[2 * i->block + 1] += __builtin_popcount(lanes);
      }
      left--;
      uint32_t mask = lanes;
      if (i->guard != NONE) {
        uint32_t guard = *AT(uint32_t, i->guard);
        if (w->poisoned && !ready) use(l, b, w, pc, i->guard, lanes);
        mask &= i->negated ? ~guard : guard;
        if (!mask) {
          pc++;
          continue;
        }
      }
      if (i->meets) {
        if (!ready && meet(l, b, w, pc, i, mask, lanes) == PARKED) {
          push(w, pc + 1, lanes & ~mask);
          break;
        }
        ready = 0;
      }
      if (w->poisoned) check_poison(l, b, w, pc, i, mask);
      int then = NEXT;
      switch (i->kind) {
      case ALU: alu(w, i, mask); break;
      case ACCESS:
        w->left = left;
        then = access(l, b, w, pc, i, mask);
        break;
      case BRANCH:
        if (i->guard != NONE) l->taken[i->op] += __builtin_popcount(mask);
        if (mask == lanes) {
          pc = i->target;
          continue;
        }
        push(w, pc + 1, lanes & ~mask);
        push(w, i->target, mask);
        lanes = 0;
        continue;
      case EXIT:
        w->live &= ~mask;
        b->exited += __builtin_popcount(mask);
        lanes &= ~mask;
        if (!w->held_count) break;
        push(w, pc + 1, lanes); /* others may have waited for those that exit */
        lanes = 0;
        continue;
      case BARRIER: then = barrier(l, b, w, pc, i, mask); break;
      case PACK:
      case UNPACK: then = pack(l, b, w, pc, i, mask); break;
      case SHUFFLE:
      case WARP: then = together(l, b, w, &(Path){pc, mask}, 1); break;
      case TENSOR:
        w->left = left;
        then = tensor(l, b, w, pc, i, mask);
        break;
      default: __builtin_unreachable();
      }
      pc++;
      if (then == PARKED) {
        push(w, pc, lanes & ~mask);
        break;
      }
      if (then == STOP) return left;
    }
  }
  return left;
}

/* Let the block's threads continue if all that live wait at the barrier; whether they do. */
static int release(Launch *l, Block *b) {
  int32_t first = INT32_MAX, other = INT32_MAX, waiting = 0, split = 0, thread = 0, others = 0;
  for (int k = 0; k < b->warps_count; k++) {
    Warp *w = &b->warps[k];
    if (w->paths_count || w->waiting != w->live) return 0;
    for (int n = 0; n < w->arrivals_count; n++) {
      waiting = 1;
      split |= w->arrivals[n].pc != w->arrivals[0].pc;
      if (w->arrivals[n].pc < first) other = first, first = w->arrivals[n].pc, thread = k * LANES + __builtin_ctz(w->arrivals[n].mask);
      else if (w->arrivals[n].pc > first && w->arrivals[n].pc < other) other = w->arrivals[n].pc;
    }
  }
  if (!waiting) return 0;
  if (other != INT32_MAX) {
    Event *event = tell(l, DIVERGENT_BARRIER, first, other, 1);
    for (int k = 0; k < b->warps_count; k++)
      for (int n = 0; n < b->warps[k].arrivals_count; n++)
        if (b->warps[k].arrivals[n].pc == other) others += __builtin_popcount(b->warps[k].arrivals[n].mask);
    if (event) event->block = b->number, event->thread = thread, event->warps_differ = !split, event->value = others;
  }
  if (b->exited) {
    Event *event = tell(l, AFTER_EXIT, first, NONE, b->exited);
    if (event) event->block = b->number;
  }
  for (int k = 0; k < b->warps_count; k++) {
    Warp *w = &b->warps[k];
    for (int n = 0; n < w->arrivals_count; n++) push(w, w->arrivals[n].pc + 1, w->arrivals[n].mask);
    w->arrivals_count = 0;
    w->waiting = 0;
    if (w->time > b->time) b->time = w->time;
  }
  b->time++;
  for (int k = 0; k < b->warps_count; k++) b->warps[k].time = b->time;
  return 1;
}

/* Special registers, by the number that Python gives. */
static void set_specials(Launch *l, Block *b, Warp *w) {
  int32_t warp = (int32_t)(w - b->warps), sizes[3] = {l->block[0], l->block[1], l->block[2]};
  int64_t x = b->number % l->grid[0], y = b->number / l->grid[0] % l->grid[1], z = b->number / l->grid[0] / l->grid[1];
  uint32_t place[3] = {(uint32_t)x, (uint32_t)y, (uint32_t)z};
  for (int n = 0; n < l->special_count; n++) {
    int32_t number = l->specials[2 * n];
    uint32_t *out = AT(uint32_t, l->specials[2 * n + 1]);
    for (int k = 0; k < LANES; k++) {
      int32_t thread = warp * LANES + k;
      int32_t tid[3] = {thread % sizes[0], thread / sizes[0] % sizes[1], thread / sizes[0] / sizes[1] % sizes[2]};
      out[k] = number < 3 ? (uint32_t)tid[number] : number < 6 ? place[number - 3] : number == 6 ? (uint32_t)k : (uint32_t)warp;
    }
  }
}

static void free_block(Block *b) {
  if (!b) return;
  for (int k = 0; b->warps && k < b->warps_count; k++) {
    free(b->warps[k].file);
    free(b->warps[k].poison);
    free(b->warps[k].poison_site);
    free(b->warps[k].first);
  }
  free(b->warps);
  free(b->shared);
  free(b->written);
  free(b->local);
  free(b->local_written);
  free(b->cells);
  free(b);
}

static void *aligned(size_t size) { return aligned_alloc(128, (size + 127) / 128 * 128 + 128); }

static Block *new_block(Launch *l) {
  int threads = l->block[0] * l->block[1] * l->block[2];
  size_t cells = (size_t)l->shared_size / (size_t)l->grain + 1, slots = (size_t)l->file_size / 4 + 1;
  Block *b = calloc(1, sizeof *b);
  if (!b) return NULL;
  b->warps_count = (threads + LANES - 1) / LANES;
  b->warps = calloc((size_t)b->warps_count, sizeof *b->warps);
  b->shared = aligned((size_t)l->shared_size);
  b->written = malloc(cells);
  b->local = malloc((size_t)l->local_size * LANES * (size_t)b->warps_count + 1);
  b->local_written = malloc((size_t)l->local_size * LANES * (size_t)b->warps_count + 1);
  b->cells = malloc(cells * sizeof *b->cells);
  int good = b->warps && b->shared && b->written && b->local && b->local_written && b->cells;
  for (int k = 0; good && k < b->warps_count; k++) {
    Warp *w = &b->warps[k];
    w->file = aligned((size_t)l->file_size);
    w->poison = calloc(slots, sizeof *w->poison);
    w->poison_site = calloc(slots, sizeof *w->poison_site);
    w->first = calloc((size_t)l->sites_count + 1, sizeof *w->first);
    good = w->file && w->poison && w->poison_site && w->first;
  }
  if (good) return b;
  free_block(b);
  return NULL;
}

static void start(Launch *l, Block *b, int64_t number) {
  int threads = l->block[0] * l->block[1] * l->block[2];
  size_t cells = (size_t)l->shared_size / (size_t)l->grain + 1;
  b->number = number;
  b->base = (uint32_t)(number * b->warps_count * LANES);
  b->time = 1;
  b->exited = 0;
  memset(b->shared, 0, (size_t)l->shared_size);
  memset(b->written, 0, cells);
  memset(b->local, 0xFF, (size_t)l->local_size * LANES * (size_t)b->warps_count);
  memset(b->local_written, 0, (size_t)l->local_size * LANES * (size_t)b->warps_count);
  memset(b->cells, 0, cells * sizeof *b->cells);
  for (int k = 0; k < b->warps_count; k++) {
    Warp *w = &b->warps[k];
    int lanes = threads - k * LANES;
    memcpy(w->file, l->image, (size_t)l->file_size);
    w->live = lanes >= LANES ? FULL : (1u << lanes) - 1;
    w->waiting = 0;
    w->steps = 0;
    w->time = 1;
    w->paths_count = w->arrivals_count = w->held_count = 0;
    w->forced = NONE;
    w->lived = 0;
    if (w->poisoned) memset(w->poison, 0, ((size_t)l->file_size / 4 + 1) * sizeof *w->poison);
    w->poisoned = 0;
    memset(w->first, 0, (size_t)l->sites_count * sizeof *w->first);
    push(w, 0, w->live);
    set_specials(l, b, w);
  }
}

int launch_run(Launch *l) {
  int64_t left = l->slice;
  if (!l->running && l->next < l->blocks_count) {
    l->running = new_block(l);
    if (!l->running) return NO_MEMORY;
    start(l, l->running, l->numbers[l->next++]);
  }
  while (l->running) {
    Block *b = l->running;
    int ran = 0, living = 0;
    for (int k = 0; k < b->warps_count; k++) {
      Warp *w = &b->warps[k];
      living |= w->live != 0;
      if (!w->paths_count && !w->held_count) continue;
      int64_t before = left;
      left = run_warp(l, b, w, left);
      w->steps += before - left;
      l->steps = w->steps;
      ran |= left != before;
      if (w->steps > l->budget) {
        l->stuck_pc = w->paths_count ? w->paths[w->paths_count - 1].pc : NONE;
        l->stuck_thread = k * LANES;
        l->stuck_block = b->number;
        return BUDGET_OVER;
      }
      if (left <= 0) return SLICE_OVER;
    }
    if (ran || release(l, b) || force(l, b)) continue;
    if (living) {
      l->stuck_block = b->number;
      return DEADLOCK;
    }
    if (l->next < l->blocks_count) {
      start(l, b, l->numbers[l->next++]);
    } else {
      free_block(b);
      l->running = NULL;
    }
  }
  return DONE;
}

void launch_free(Launch *l) {
  free_block(l->running);
  l->running = NULL;
}

void sizes(int32_t *out) {
  out[0] = sizeof(Instruction), out[1] = sizeof(Site), out[2] = sizeof(Buffer), out[3] = sizeof(Event);
  out[4] = sizeof(Launch), out[5] = sizeof(Cell);
}
