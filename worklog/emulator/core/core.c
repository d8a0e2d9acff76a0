#include "core.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of lanes of one warp that are at the same instruction. */
typedef struct {
  int32_t pc;
  uint32_t mask;
} Path;

typedef struct {
  uint8_t *file;
  uint32_t live, waiting; /* lanes that have not exited; those at a barrier */
  int64_t steps, entry;   /* instructions so far, before this turn; what was left of the slice then */
  uint32_t time;          /* of the block's last barrier, and one more for each __syncwarp() since */
  int64_t *first;         /* by site: the barriers and steps of the block at its first access since the last barrier */
  int32_t paths_count, arrivals_count;
  Path paths[LANES], arrivals[LANES]; /* paths: by falling pc */
  int32_t poisoned;                   /* whether any register holds a value that must not be used */
  int32_t *poison_site;               /* by register slot of 4 bytes: the instruction that loaded it */
  uint32_t *poison;                   /* and its lanes */
} Warp;

struct Block {
  int64_t number;
  int32_t warps_count, turn;
  uint32_t base;  /* the number of its first thread in the launch */
  uint32_t time;  /* later than all accesses before the last barrier */
  int32_t exited; /* threads */
  Warp *warps;
  uint8_t *shared, *written, *local;
  Cell *cells;
};

/* Events. */

static Event *tell(Launch *l, int32_t kind, int32_t pc, int32_t other, int64_t count) {
  for (int32_t k = 0; k < l->events_count; k++) {
    Event *known = &l->events[k];
    if (known->kind == kind && known->pc == pc && known->other_pc == other) {
      known->count += count;
      return NULL;
    }
  }
  if (l->events_count == l->events_room) return NULL;
  Event *new = &l->events[l->events_count++];
  *new = (Event){.kind = kind, .pc = pc, .other_pc = other, .count = count};
  return new;
}

static void tell_lanes(Launch *l, Block *b, Warp *w, int32_t kind, int32_t pc, uint32_t lanes, int64_t value) {
  Event *event = tell(l, kind, pc, NONE, __builtin_popcount(lanes));
  if (event) {
    event->block = b->number;
    event->thread = (int32_t)(w - b->warps) * LANES + __builtin_ctz(lanes);
    event->lanes = lanes;
    event->value = value;
  }
}

/* Two accesses without order. In which order warps run means nothing, so the first one is called that which a thread
 * reaches earlier after the last barrier; of different blocks, that with the lower pc. */
static void tell_race(Launch *l, Block *b, int32_t kind, int32_t pc, const Stamp *before, int32_t lane, uint64_t value) {
  uint32_t threads = (uint32_t)b->warps_count * LANES;
  int64_t block = (before->thread - 1) / threads, other_block = b->number;
  int32_t thread = (int32_t)((before->thread - 1) % threads), other = lane, first = before->pc, second = pc;
  int32_t apart = block != b->number || thread / LANES != lane / LANES;
  int64_t rank = first, other_rank = second;
  if (block == other_block && first != second) {
    rank = b->warps[thread / LANES].first[l->code[first].site];
    other_rank = b->warps[lane / LANES].first[l->code[second].site];
  }
  int late = rank > other_rank || (rank == other_rank && (block > other_block || (block == other_block && thread > other)));
  if (kind != STALE_READ && late) {
    int64_t x = block;
    block = other_block, other_block = x;
    int32_t y = thread, z = first;
    thread = other, other = y, first = second, second = z;
  }
  Event *event = tell(l, kind, second, first, 1);
  if (event) {
    event->block = other_block, event->thread = other;
    event->other_block = block, event->other_thread = thread;
    event->warps_differ = apart;
    event->value = (int64_t)value;
  } else if (apart) {
    for (int32_t k = 0; k < l->events_count; k++) {
      Event *known = &l->events[k];
      if (known->kind == kind && known->pc == second && known->other_pc == first) known->warps_differ = 1;
    }
  }
}

/* Order: shared and global memory have cells of `grain` bytes with their last accesses. Two accesses of different
 * threads of one block are ordered by a barrier between them, so by their times, and those of one warp also by a
 * __syncwarp(); those of different blocks never. */

static inline int unordered(const Launch *l, const Block *b, const Stamp *before, uint32_t thread, int32_t pc) {
  if (!before->thread || before->thread == thread) return 0;
  uint32_t one = before->thread - 1 - b->base, two = thread - 1 - b->base;
  int same_block = one < (uint32_t)b->warps_count * LANES;
  if (same_block && before->time < b->time) return 0;
  if (same_block && one / LANES == two / LANES && before->time != b->warps[two / LANES].time) return 0;
  return !l->sites[l->code[pc].site].strong || !l->sites[l->code[before->pc].site].strong;
}

static void order_read(Launch *l, Block *b, Cell *cell, int32_t kind, int32_t pc, int32_t lane, uint64_t address) {
  uint32_t thread = b->base + (uint32_t)lane + 1;
  if (!cell->agreed && unordered(l, b, &cell->write, thread, pc)) tell_race(l, b, kind, pc, &cell->write, lane, address);
  if (cell->read.thread && cell->read.thread != thread) cell->other = cell->read;
  cell->read = (Stamp){thread, b->warps[lane / LANES].time, pc};
}

/* same: the bytes don't change. */
static void order_write(Launch *l, Block *b, Cell *cell, int32_t kind, int32_t pc, int32_t lane, uint64_t address, int same) {
  uint32_t thread = b->base + (uint32_t)lane + 1;
  int clash = unordered(l, b, &cell->write, thread, pc);
  if (!same) {
    if (clash) tell_race(l, b, kind, pc, &cell->write, lane, address);
    if (unordered(l, b, &cell->read, thread, pc)) tell_race(l, b, kind, pc, &cell->read, lane, address);
    if (unordered(l, b, &cell->other, thread, pc)) tell_race(l, b, kind, pc, &cell->other, lane, address);
  }
  cell->agreed = clash && same;
  cell->write = (Stamp){thread, b->warps[lane / LANES].time, pc};
}

/* Counts. */

static int compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* Distinct values among n. Most are sorted already. */
static int distinct(uint64_t *x, int n) {
  int sorted = 1, count = 1;
  for (int k = 1; k < n; k++) sorted &= x[k - 1] <= x[k];
  if (!sorted) qsort(x, (size_t)n, sizeof *x, compare);
  for (int k = 1; k < n; k++) count += x[k] != x[k - 1];
  return count;
}

static void count_global(const uint64_t *address, uint32_t mask, int width, int64_t *costs) {
  uint64_t sector[LANES], line[LANES];
  int n = 0;
  for (int k = 0; k < LANES; k++)
    if (mask >> k & 1) sector[n] = address[k] / 32, line[n++] = address[k] / 128;
  costs[0] = 1;
  costs[1] = distinct(sector, n);
  costs[4] = (int64_t)n * width;
  costs[5] = distinct(line, n);
}

/* One phase of 128 bytes: as many passes as the busiest of the 32 banks has distinct words. */
static int passes(const uint64_t *address, uint32_t mask, int first, int lanes, int words) {
  uint64_t word[LANES * 4];
  int n = 0, load[32] = {0}, most = 0;
  for (int k = first; k < first + lanes; k++)
    for (int j = 0; j < words && mask >> k & 1; j++) word[n++] = address[k] / 4 + (uint64_t)j;
  if (!n) return 0;
  int count = distinct(word, n);
  (void)count;
  for (int k = 0; k < n; k++) {
    if (k && word[k] == word[k - 1]) continue;
    int *bank = &load[word[k] % 32];
    if (++*bank > most) most = *bank;
  }
  return most;
}

/* Wavefronts and conflicts, as worklog.emulator.counts.wavefronts. */
static void count_shared(const uint64_t *address, uint32_t mask, int width, int64_t *costs) {
  int phases = width > 4 ? width / 4 : 1, words = width > 4 ? width / 4 : 1;
  for (int distance = 1; distance <= 2 && width > 4; distance++) {
    int paired = 1;
    for (int k = 0; k < LANES; k++) {
      int other = k ^ distance;
      paired &= address[k] == address[other] || !(mask >> k & 1) || !(mask >> other & 1);
    }
    if (paired) {
      phases /= 2;
      break;
    }
  }
  costs[0] = 1;
  for (int k = 0; k < phases; k++) {
    int count = passes(address, mask, k * (LANES / phases), LANES / phases, words);
    costs[2] += count;
    costs[3] += count ? count - 1 : 0;
  }
}

/* What is known of these addresses: they are often those of the last access, or as far apart. */
static Cost *look_up(Site *s, const uint64_t *address, uint32_t mask) {
  Cost *last = &s->last;
  int first = __builtin_ctz(mask);
  uint64_t relative[LANES];
  for (int k = 0; k < LANES; k++) relative[k] = address[k] - address[first];
  uint64_t start = address[first] & (s->space == SHARED ? 15 : 127);
  if (last->known && last->mask == mask && last->start == start && !memcmp(relative, last->relative, sizeof relative))
    return last;
  memcpy(last->relative, relative, sizeof relative);
  last->mask = mask, last->start = start, last->known = 1, last->counted = 0, last->readers = 0;
  return last;
}

/* Of lanes that read, those that stand for all: two of each address. */
static uint32_t readers(Site *s, const uint64_t *address, uint32_t mask) {
  Cost *last = look_up(s, address, mask);
  for (int j = 0, unknown = !last->readers; unknown && j < LANES; j++) {
    int earlier = 0;
    for (int n = 0; n < j && earlier < 2; n++) earlier += address[n] == address[j] && mask >> n & 1;
    if (earlier < 2 && mask >> j & 1) last->readers |= 1u << j;
  }
  return last->readers;
}

static void count(Site *s, const uint64_t *address, uint32_t mask) {
  Cost *last = look_up(s, address, mask);
  int width = s->size * s->count;
  if (!last->counted) {
    last->counted = 1;
    memset(last->costs, 0, sizeof last->costs);
    if (s->space != SHARED) {
      count_global(address, mask, width, last->costs);
    } else {
      uint64_t wide[LANES];
      int counted = 1, wide_width = width;
      memcpy(wide, address, sizeof wide);
      for (int g = 0; g < s->groups_count; g++) {
        uint64_t crooked = 0, moved[LANES];
        for (int k = 0; k < LANES; k++) {
          moved[k] = address[k] + (uint64_t)(s->groups[g].offset - s->offset);
          if (mask >> k & 1) crooked |= moved[k] % (uint64_t)s->groups[g].width;
        }
        if (crooked) continue;
        counted = s->groups[g].leads;
        wide_width = s->groups[g].width;
        memcpy(wide, moved, sizeof wide);
        break;
      }
      if (counted) count_shared(wide, mask, wide_width, last->costs);
      last->costs[4] = (int64_t)__builtin_popcount(mask) * width;
    }
  }
  for (int k = 0; k < 6; k++) s->costs[k] += last->costs[k];
}

/* Accesses: resolve, bounds, order, count, move. */

static Buffer *buffer_at(Launch *l, uint64_t address) {
  for (int k = 0; k < l->buffers_count; k++)
    if (address - l->buffers[k].base < l->buffers[k].size) return &l->buffers[k];
  return NULL;
}

#define MOVE(memory_type, register_type)                                                        \
  do {                                                                                          \
    register_type *d = (register_type *)(w->file + s->values[e]);                               \
    for (int k = 0; k < LANES; k++) {                                                           \
      if (!(mask >> k & 1)) continue;                                                           \
      memory_type *m = (memory_type *)(memory + address[k]) + e;                                \
      if (load) d[k] = (register_type)*m;                                                       \
      else *m = (memory_type)d[k];                                                              \
    }                                                                                           \
  } while (0)

/* The bytes of lanes, at memory + address, to registers, or from them. Registers of 2, 4 or 8 bytes. */
static inline void move(const Site *s, Warp *w, uint8_t *memory, const uint64_t *address, uint32_t mask, int load) {
  for (int e = 0; e < s->count; e++) {
    if (s->values[e] == NONE) continue;
    if (s->size == 4 && s->width == 4) MOVE(uint32_t, uint32_t);
    else if (s->size == 8) MOVE(uint64_t, uint64_t);
    else if (s->size == 4 && s->is_signed) MOVE(int32_t, int64_t);
    else if (s->size == 4) MOVE(uint32_t, uint64_t);
    else if (s->size == 2 && s->width == 2) MOVE(uint16_t, uint16_t);
    else if (s->size == 2 && s->is_signed && s->width == 4) MOVE(int16_t, int32_t);
    else if (s->size == 2 && s->is_signed) MOVE(int16_t, int64_t);
    else if (s->size == 2 && s->width == 4) MOVE(uint16_t, uint32_t);
    else if (s->size == 2) MOVE(uint16_t, uint64_t);
    else if (s->is_signed && s->width == 2) MOVE(int8_t, int16_t);
    else if (s->is_signed && s->width == 4) MOVE(int8_t, int32_t);
    else if (s->is_signed) MOVE(int8_t, int64_t);
    else if (s->width == 2) MOVE(uint8_t, uint16_t);
    else if (s->width == 4) MOVE(uint8_t, uint32_t);
    else MOVE(uint8_t, uint64_t);
  }
}

static inline int unchanged(const Site *s, const Warp *w, int lane, const uint8_t *memory, int cell, int grain) {
  const uint8_t *value = w->file + s->values[cell / s->size] + lane * s->width + cell % s->size;
  return grain == 4 ? *(const uint32_t *)(memory + cell) == *(const uint32_t *)value
                    : !memcmp(memory + cell, value, (size_t)grain);
}

static void zero(const Site *s, Warp *w, uint32_t lanes) {
  for (int lane = 0; s->op == ATOMIC && lane < LANES; lane++)
    if (lanes >> lane & 1 && s->result != NONE) memset(w->file + s->result + lane * s->width, 0, (size_t)s->width);
  if (s->op == ATOMIC) return;
  for (int lane = 0; lane < LANES; lane++)
    for (int k = 0; k < s->count && lanes >> lane & 1; k++)
      if (s->values[k] != NONE) memset(w->file + s->values[k] + lane * s->width, 0, (size_t)s->width);
}

#define APPLY(type, add)                                                                     \
  do {                                                                                       \
    type old, x, y = 0, new;                                                                 \
    memcpy(&old, memory, sizeof old);                                                        \
    memcpy(&x, w->file + s->values[0] + lane * s->width, sizeof x);                          \
    if (s->atomic == COMPARE) memcpy(&y, w->file + s->values[1] + lane * s->width, sizeof y); \
    switch (s->atomic) {                                                                     \
    case ADD: new = (type)(add); break;                                                      \
    case MIN: new = x < old ? x : old; break;                                                \
    case MAX: new = x > old ? x : old; break;                                                \
    case COMPARE: new = old == x ? y : old; break;                                           \
    case INCREASE: new = old >= x ? 0 : (type)(old + 1); break;                              \
    case DECREASE: new = old == 0 || old > x ? x : (type)(old - 1); break;                   \
    default: new = x;                                                                        \
    }                                                                                        \
    memcpy(memory, &new, sizeof new);                                                        \
    if (s->result != NONE) memcpy(w->file + s->result + lane * s->width, &old, sizeof old);  \
  } while (0)

/* An atomic of one lane. */
static void apply(const Site *s, const Warp *w, uint8_t *memory, int lane) {
  if (s->atomic >= AND && s->atomic <= XOR) {
    uint64_t old = 0, x = 0;
    memcpy(&old, memory, (size_t)s->size);
    memcpy(&x, w->file + s->values[0] + lane * s->width, (size_t)s->size);
    x = s->atomic == AND ? old & x : s->atomic == OR ? old | x : old ^ x;
    memcpy(memory, &x, (size_t)s->size);
    if (s->result != NONE) memcpy(w->file + s->result + lane * s->width, &old, (size_t)s->size);
  } else if (s->is_float && s->size == 4) {
    APPLY(float, old + x);
  } else if (s->is_float) {
    APPLY(double, old + x);
  } else if (s->size == 4 && s->is_signed) {
    APPLY(int32_t, (uint32_t)old + (uint32_t)x);
  } else if (s->size == 4) {
    APPLY(uint32_t, old + x);
  } else if (s->is_signed) {
    APPLY(int64_t, (uint64_t)old + (uint64_t)x);
  } else {
    APPLY(uint64_t, old + x);
  }
}

/* Move lanes in one buffer, whose addresses are valid. */
static void in_buffer(Launch *l, Block *b, Warp *w, const Site *s, int32_t pc, Buffer *buffer, const uint64_t *address,
                      uint32_t mask) {
  int width = s->size * s->count, load = s->op == LOAD, shift = __builtin_ctz((unsigned)l->grain);
  if (!buffer->data || !l->values) {
    if (load || s->op == ATOMIC) zero(s, w, mask);
    return;
  }
  if (!buffer->cells && s->op != ATOMIC) {
    move(s, w, buffer->data - buffer->base, address, mask, load);
    return;
  }
  for (int lane = 0; lane < LANES; lane++) {
    if (!(mask >> lane & 1)) continue;
    uint64_t byte = address[lane] - buffer->base;
    int number = (int)(w - b->warps) * LANES + lane;
    for (int cell = 0; buffer->cells && cell < width; cell += l->grain) {
      Cell *at = &buffer->cells[(byte + (uint64_t)cell) >> shift];
      if (load && s->read_only && at->write.thread) tell_race(l, b, STALE_READ, pc, &at->write, number, address[lane]);
      else if (load) order_read(l, b, at, GLOBAL_RACE, pc, number, address[lane]);
      else
        order_write(l, b, at, GLOBAL_RACE, pc, number, address[lane],
                    s->op == STORE && unchanged(s, w, lane, buffer->data + byte, cell, l->grain));
    }
    if (s->op == ATOMIC) apply(s, w, buffer->data + byte, lane);
    else move(s, w, buffer->data - buffer->base, address, 1u << lane, load);
  }
}

static void global(Launch *l, Block *b, Warp *w, Site *s, int32_t pc, const uint64_t *address, uint32_t mask) {
  uint64_t width = (uint64_t)(s->size * s->count), low = address[0], high = address[0], any = 0;
  int load = s->op == LOAD;
  if (l->counting) count(s, address, mask);
  for (int k = 0; k < LANES; k++) {
    low = address[k] < low ? address[k] : low;
    high = address[k] > high ? address[k] : high;
    any |= address[k];
  }
  Buffer *buffer = s->buffer == NONE ? NULL : &l->buffers[s->buffer];
  if (!buffer || low - buffer->base >= buffer->size) buffer = buffer_at(l, low);
  s->buffer = buffer ? buffer - l->buffers : NONE;
  if (buffer && high + width <= buffer->base + buffer->size && !(any & (width - 1)) && (load || buffer->writable)) {
    in_buffer(l, b, w, s, pc, buffer, address, mask);
    return;
  }
  uint32_t outside = 0, fixed = 0, crooked = 0;
  for (int lane = 0; lane < LANES; lane++) {
    if (!(mask >> lane & 1)) continue;
    buffer = buffer_at(l, address[lane]);
    if (address[lane] & (width - 1)) crooked |= 1u << lane;
    else if (!buffer || address[lane] + width > buffer->base + buffer->size) outside |= 1u << lane;
    else if (!load && !buffer->writable) fixed |= 1u << lane;
    else in_buffer(l, b, w, s, pc, buffer, address, 1u << lane);
  }
  if (s->op != STORE) zero(s, w, crooked | outside);
  if (crooked) tell_lanes(l, b, w, MISALIGNED, pc, crooked, (int64_t)address[__builtin_ctz(crooked)]);
  if (outside) tell_lanes(l, b, w, OUT_OF_BOUNDS, pc, outside, (int64_t)address[__builtin_ctz(outside)]);
  if (fixed) tell_lanes(l, b, w, READ_ONLY, pc, fixed, (int64_t)address[__builtin_ctz(fixed)]);
}

/* The lanes whose addresses in shared memory are valid; the others are reported. */
static uint32_t inside(Launch *l, Block *b, Warp *w, const Site *s, int32_t pc, const uint64_t *address, uint32_t mask) {
  int64_t width = s->size * s->count, low = INT64_MAX, high = INT64_MIN, any = 0;
  for (int k = 0; k < LANES; k++) {
    int64_t x = (int64_t)address[k];
    low = x < low ? x : low;
    high = x > high ? x : high;
    any |= x;
  }
  int64_t first = s->array_size == NONE ? 0 : s->array_start;
  int64_t end = s->array_size == NONE ? l->shared_size : s->array_start + s->array_size;
  if (low >= first && high + width <= end && end <= l->shared_size && !(any & (width - 1))) return mask;
  uint32_t outside = 0, strayed = 0, crooked = 0;
  for (int lane = 0; lane < LANES; lane++) {
    int64_t x = (int64_t)address[lane], own = x - s->array_start;
    if (!(mask >> lane & 1)) continue;
    if (x < 0 || x + width > l->shared_size) outside |= 1u << lane;
    else if (s->array_size != NONE && (own < 0 || own + width > s->array_size)) strayed |= 1u << lane;
    if (x & (width - 1) && !(outside >> lane & 1)) crooked |= 1u << lane;
  }
  if (outside) tell_lanes(l, b, w, OUT_OF_BOUNDS, pc, outside, (int64_t)address[__builtin_ctz(outside)]);
  if (strayed) tell_lanes(l, b, w, OUTSIDE_ARRAY, pc, strayed, (int64_t)address[__builtin_ctz(strayed)] - s->array_start);
  if (crooked) tell_lanes(l, b, w, MISALIGNED, pc, crooked, (int64_t)address[__builtin_ctz(crooked)]);
  return mask & ~(outside | crooked);
}

/* Order of an access to shared memory; the lanes that read bytes that no thread has written. */
static uint32_t order_shared(Launch *l, Block *b, Warp *w, Site *s, int32_t pc, const uint64_t *address,
                             uint32_t mask) {
  int width = s->size * s->count, load = s->op == LOAD, shift = __builtin_ctz((unsigned)l->grain);
  uint32_t missing = 0, concerned = load ? readers(s, address, mask) : mask;
  for (int lane = 0; lane < LANES; lane++) {
    if (!(concerned >> lane & 1)) continue;
    int number = (int)(w - b->warps) * LANES + lane;
    for (int cell = 0; cell < width; cell += l->grain) {
      uint64_t place = (address[lane] + (uint64_t)cell) >> shift;
      Cell *at = &b->cells[place];
      if (s->op != STORE && !b->written[place]) missing |= 1u << lane;
      if (load) {
        order_read(l, b, at, SHARED_RACE, pc, number, address[lane]);
        continue;
      }
      /* Writes of one value by several lanes of a store are no race; any other two writes are. */
      int one_store = at->write.pc == pc && at->write.time == w->time;
      int same = s->op == STORE && one_store && unchanged(s, w, lane, b->shared + address[lane], cell, l->grain);
      order_write(l, b, at, SHARED_RACE, pc, number, address[lane], same);
      at->agreed = 0;
      if (s->op == STORE) b->written[place] = 1;
    }
    if (s->op == STORE) move(s, w, b->shared, address, 1u << lane, 0);
  }
  for (int lane = 0; missing && lane < LANES; lane++)
    for (int other = 0; other < LANES; other++)
      if (missing >> other & 1 && mask >> lane & 1 && address[lane] == address[other]) missing |= 1u << lane;
  return missing;
}

static void shared(Launch *l, Block *b, Warp *w, Site *s, int32_t pc, const uint64_t *address, uint32_t mask) {
  int load = s->op == LOAD;
  uint32_t good = inside(l, b, w, s, pc, address, mask), missing = 0;
  if (s->op != STORE && good != mask) zero(s, w, mask & ~good);
  if (!good) return;
  if (l->counting) count(s, address, good);
  if (!l->values) {
    if (s->op != STORE) zero(s, w, good);
    return;
  }
  if (l->checking) missing = order_shared(l, b, w, s, pc, address, good);
  for (int lane = 0; s->op == ATOMIC && lane < LANES; lane++)
    if (good >> lane & 1) apply(s, w, b->shared + address[lane], lane);
  if (load || (s->op == STORE && !l->checking)) move(s, w, b->shared, address, good, load);
  if (missing) {
    w->poisoned = 1;
    if (s->op == ATOMIC && s->result != NONE) w->poison[s->result / 128] |= missing, w->poison_site[s->result / 128] = pc;
    for (int k = 0; s->op == LOAD && k < s->count; k++) {
      if (s->values[k] == NONE) continue;
      w->poison[s->values[k] / 128] |= missing;
      w->poison_site[s->values[k] / 128] = pc;
    }
  }
}

static void access(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask, int64_t left) {
  Site *s = &l->sites[i->site];
  int64_t *known = &w->first[i->site];
  if (*known >> 40 != b->time) *known = (int64_t)b->time << 40 | ((w->steps + w->entry - left) & 0xFFFFFFFFFF);
  uint64_t address[LANES];
  if (s->wide) {
    const uint64_t *base = (const uint64_t *)(w->file + i->a);
    for (int k = 0; k < LANES; k++) address[k] = base[k] + (uint64_t)s->offset;
  } else if (s->space == SHARED || s->space == LOCAL) {
    const int32_t *base = (const int32_t *)(w->file + i->a);
    for (int k = 0; k < LANES; k++) address[k] = (uint64_t)(base[k] + s->offset);
  } else {
    const uint32_t *base = (const uint32_t *)(w->file + i->a);
    for (int k = 0; k < LANES; k++) address[k] = base[k] + (uint64_t)s->offset;
  }
  /* Lanes that are idle take part in no check: they have a valid lane's address. */
  for (int k = 0, first = __builtin_ctz(mask); mask != FULL && k < LANES; k++)
    if (!(mask >> k & 1)) address[k] = address[first];
  if (s->space == SHARED) {
    shared(l, b, w, s, pc, address, mask);
  } else if (s->space == LOCAL) {
    for (int lane = 0; lane < LANES; lane++) {
      if (!(mask >> lane & 1)) continue;
      int64_t thread = (w - b->warps) * LANES + lane, x = (int64_t)address[lane], width = s->size * s->count;
      if (x < 0 || x + width > l->local_size || x & (width - 1)) {
        tell_lanes(l, b, w, x & (width - 1) ? MISALIGNED : OUT_OF_BOUNDS, pc, 1u << lane, x);
        if (s->op == LOAD) zero(s, w, 1u << lane);
      } else {
        move(s, w, b->local + thread * l->local_size, address, 1u << lane, s->op == LOAD);
      }
    }
  } else {
    global(l, b, w, s, pc, address, mask);
  }
}

/* Poison: registers loaded from shared memory that no thread has written. Only a copy may read one. */

static int poison_of(Launch *l, Block *b, Warp *w, int32_t pc, int32_t offset, uint32_t mask, int copies, int32_t *site) {
  uint32_t bad = offset == NONE ? 0 : w->poison[offset / 128] & mask;
  (void)pc;
  if (!bad) return 0;
  *site = w->poison_site[offset / 128];
  if (!copies) {
    Event *event = tell(l, UNINITIALISED, *site, pc, __builtin_popcount(bad));
    if (event) {
      event->block = b->number;
      event->thread = (int32_t)(w - b->warps) * LANES + __builtin_ctz(bad);
      event->lanes = bad;
    }
    w->poison[offset / 128] = 0;
    return 0;
  }
  return (int)bad;
}

static void check_poison(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  int32_t site = NONE;
  uint32_t bad = (uint32_t)poison_of(l, b, w, pc, i->a, mask, i->copies, &site);
  poison_of(l, b, w, pc, i->b, mask, 0, &site);
  if (i->kind == UNPACK) {
    if (i->c != NONE) w->poison[i->c / 128] &= ~mask;
  } else {
    poison_of(l, b, w, pc, i->c, mask, 0, &site);
  }
  if (i->kind == ACCESS && l->sites[i->site].op == ATOMIC && l->sites[i->site].result != NONE)
    w->poison[l->sites[i->site].result / 128] &= ~mask;
  if (i->kind == ACCESS && l->sites[i->site].op != LOAD)
    for (int k = 0; k < 4; k++) poison_of(l, b, w, pc, l->sites[i->site].values[k], mask, 0, &site);
  if (i->kind == ACCESS && l->sites[i->site].op == LOAD)
    for (int k = 0; k < l->sites[i->site].count; k++)
      if (l->sites[i->site].values[k] != NONE) w->poison[l->sites[i->site].values[k] / 128] &= ~mask;
  if (i->d != NONE) {
    w->poison[i->d / 128] = (w->poison[i->d / 128] & ~mask) | bad;
    if (bad) w->poison_site[i->d / 128] = site;
  }
}

/* Running. */

#define AT(type, offset) ((type *)(w->file + (offset)))
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
#define LEAST(name, type, function)                                \
  static inline type name(type a, type b) {                        \
    return a == 0 && b == 0 ? signbit(a) ? a : b : function(a, b); \
  }
LEAST(least_float, float, fminf)
LEAST(least_double, double, fmin)

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

/* shfl.sync of a whole warp: PTX ISA. d: the values; target: the predicate's offset, or NONE. */
static void shuffle(Warp *w, const Instruction *i) {
  const uint32_t *value = AT(uint32_t, i->a), *b = AT(uint32_t, i->b), *c = AT(uint32_t, i->c);
  uint32_t out[LANES], valid = 0;
  for (int k = 0; k < LANES; k++) {
    int distance = (int)(b[k] & 31), clamp = (int)(c[k] & 31), segment = (int)(c[k] >> 8 & 31);
    int low = k & segment, high = low | (clamp & ~segment), from, good;
    if (i->op == UP) from = k - distance, good = from >= high;
    else if (i->op == DOWN) from = k + distance, good = from <= high;
    else from = i->op == BUTTERFLY ? k ^ distance : (low | (distance & ~segment)), good = from <= high;
    out[k] = value[good ? from : k];
    valid |= (uint32_t)good << k;
  }
  memcpy(AT(uint32_t, i->d), out, sizeof out);
  if (i->target != NONE) *AT(uint32_t, i->target) = valid;
}

/* Instructions in which the lanes of a warp meet; all 32 do, but for activemask. */
static void meet(Warp *w, const Instruction *i, uint32_t lanes) {
  uint32_t votes = i->op >= ANY && i->op <= BALLOT ? *AT(uint32_t, i->a) : 0, out = lanes;
  const uint32_t *x = i->op >= SUM ? AT(uint32_t, i->a) : NULL;
  if (i->op == SYNCHRONISE) {
    w->time++;
    return;
  }
  if (i->op >= ANY && i->op <= UNIFORM) {
    int yes = i->op == ANY ? votes != 0 : i->op == ALL ? votes == FULL : votes == FULL || !votes;
    *AT(uint32_t, i->d) = yes ? FULL : 0;
    return;
  }
  if (i->op == BALLOT) out = votes;
  if (i->op >= SUM) out = x[0];
  for (int k = 1; i->op >= SUM && k < LANES; k++) {
    int less = i->negated == 2 ? (int32_t)x[k] < (int32_t)out : x[k] < out;
    if (i->op == SUM) out += x[k];
    else if (i->op == LEAST_OF) out = less ? x[k] : out;
    else if (i->op == MOST_OF) out = less ? out : x[k];
    else out = i->op == AND_OF ? out & x[k] : i->op == OR_OF ? out | x[k] : out ^ x[k];
  }
  for (int k = 0; k < LANES; k++)
    if (lanes >> k & 1) AT(uint32_t, i->d)[k] = out;
}

/* Two words as one of twice the width, and back; c: the second word's register. */
static void pack(Warp *w, const Instruction *i, uint32_t mask) {
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
}

/* Continue lanes at an instruction: those with the lowest pc run first, and join lanes that are there. */
static void push(Warp *w, int32_t pc, uint32_t mask) {
  if (!mask) return;
  int k = w->paths_count;
  while (k && w->paths[k - 1].pc < pc) k--;
  if (k && w->paths[k - 1].pc == pc) {
    w->paths[k - 1].mask |= mask;
    return;
  }
  memmove(&w->paths[k + 1], &w->paths[k], sizeof(Path) * (size_t)(w->paths_count - k));
  w->paths[k] = (Path){pc, mask};
  w->paths_count++;
}

/* Run a warp until it exits, waits or has executed `left` instructions; what is left. */
static int64_t run_warp(Launch *l, Block *b, Warp *w, int64_t left) {
  w->entry = left;
  while (w->paths_count && left > 0) {
    Path path = w->paths[--w->paths_count];
    int32_t pc = path.pc, next = w->paths_count ? w->paths[w->paths_count - 1].pc : INT32_MAX;
    uint32_t lanes = path.mask;
    while (1) {
      const Instruction *i = &l->code[pc];
      if (i->block != NONE) {
        if (pc >= next || left <= 0) {
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
        mask &= i->negated ? ~guard : guard;
      }
      if (w->poisoned && mask) check_poison(l, b, w, pc, i, mask);
      if (i->kind == ALU) {
        if (mask) alu(w, i, mask);
        pc++;
      } else if (i->kind == ACCESS) {
        if (mask) access(l, b, w, pc, i, mask, left);
        pc++;
      } else if (i->kind == BRANCH) {
        if (mask == lanes) {
          pc = i->target;
        } else if (!mask) {
          pc++;
        } else {
          push(w, pc + 1, lanes & ~mask);
          push(w, i->target, mask);
          break;
        }
      } else if (i->kind == EXIT) {
        w->live &= ~mask;
        b->exited += __builtin_popcount(mask);
        lanes &= ~mask;
        pc++;
        if (!lanes) break;
      } else if (i->kind == PACK || i->kind == UNPACK) {
        pack(w, i, mask);
        pc++;
      } else if (i->kind == SHUFFLE || i->kind == WARP) {
        if (mask != FULL && !(i->kind == WARP && i->op == ACTIVE)) {
          l->stuck_pc = pc;
          l->other_engine = 1;
          return left;
        }
        if (i->kind == SHUFFLE) shuffle(w, i);
        else if (mask) meet(w, i, mask);
        pc++;
      } else {
        w->waiting |= mask;
        w->arrivals[w->arrivals_count++] = (Path){pc, mask};
        push(w, pc + 1, lanes & ~mask);
        break;
      }
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
  free(b->cells);
  free(b);
}

static void *aligned(size_t size) { return aligned_alloc(128, (size + 127) / 128 * 128 + 128); }

static Block *new_block(Launch *l) {
  int threads = l->block[0] * l->block[1] * l->block[2];
  size_t cells = (size_t)l->shared_size / (size_t)l->grain + 1, slots = (size_t)l->file_size / 128 + 1;
  Block *b = calloc(1, sizeof *b);
  if (!b) return NULL;
  b->warps_count = (threads + LANES - 1) / LANES;
  b->warps = calloc((size_t)b->warps_count, sizeof *b->warps);
  b->shared = aligned((size_t)l->shared_size);
  b->written = malloc(cells);
  b->local = malloc((size_t)l->local_size * LANES * (size_t)b->warps_count + 1);
  b->cells = malloc(cells * sizeof *b->cells);
  int good = b->warps && b->shared && b->written && b->local && b->cells;
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
  memset(b->cells, 0, cells * sizeof *b->cells);
  for (int k = 0; k < b->warps_count; k++) {
    Warp *w = &b->warps[k];
    int lanes = threads - k * LANES;
    memcpy(w->file, l->image, (size_t)l->file_size);
    w->live = lanes >= LANES ? FULL : (1u << lanes) - 1;
    w->waiting = 0;
    w->steps = 0;
    w->time = 1;
    w->paths_count = w->arrivals_count = 0;
    if (w->poisoned) memset(w->poison, 0, ((size_t)l->file_size / 128 + 1) * sizeof *w->poison);
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
      if (!w->paths_count) continue;
      int64_t before = left;
      left = run_warp(l, b, w, left);
      w->steps += before - left;
      if (l->other_engine) return OTHER_ENGINE;
      l->steps = w->steps;
      ran = 1;
      if (w->steps > l->budget) {
        l->stuck_pc = w->paths_count ? w->paths[w->paths_count - 1].pc : NONE;
        l->stuck_thread = k * LANES;
        l->stuck_block = b->number;
        return BUDGET_OVER;
      }
      if (left <= 0) return SLICE_OVER;
    }
    if (ran || release(l, b)) continue;
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
