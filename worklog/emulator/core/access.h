/* Accesses to memory. Included by core.c alone. */
#ifndef WORKLOG_ACCESS_H
#define WORKLOG_ACCESS_H

#include "drain.h"

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
static inline void move(const Site *s, Warp *w, uintptr_t memory, const uint64_t *address, uint32_t mask, int load) {
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
  const int32_t *registers = s->op == ATOMIC ? s->results : s->values;
  for (int lane = 0; lane < LANES; lane++)
    for (int k = 0; k < s->count && lanes >> lane & 1; k++)
      if (registers[k] != NONE) memset(w->file + registers[k] + lane * s->width, 0, (size_t)s->width);
}

#define APPLY(type, add)                                                                     \
  do {                                                                                       \
    type old, x, y = 0, new;                                                                 \
    memcpy(&old, memory, sizeof old);                                                        \
    memcpy(&x, w->file + s->values[e] + lane * s->width, sizeof x);                          \
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
    if (s->results[e] != NONE) memcpy(w->file + s->results[e] + lane * s->width, &old, sizeof old);  \
  } while (0)

/* Element e of an atomic of one lane. */
static void apply_one(const Site *s, const Warp *w, uint8_t *memory, int lane, int e) {
  if (s->atomic >= AND && s->atomic <= XOR) {
    uint64_t old = 0, x = 0;
    memcpy(&old, memory, (size_t)s->size);
    memcpy(&x, w->file + s->values[e] + lane * s->width, (size_t)s->size);
    x = s->atomic == AND ? old & x : s->atomic == OR ? old | x : old ^ x;
    memcpy(memory, &x, (size_t)s->size);
    if (s->results[e] != NONE) memcpy(w->file + s->results[e] + lane * s->width, &old, (size_t)s->size);
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

static void apply(const Site *s, const Warp *w, uint8_t *memory, int lane) {
  for (int e = 0; e < s->count; e++) apply_one(s, w, memory + e * s->size, lane, e);
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
    move(s, w, (uintptr_t)buffer->data - buffer->base, address, mask, load);
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
    uint64_t old = 0;
    if (s->op == ATOMIC) {
      memcpy(&old, buffer->data + byte, (size_t)s->size);
      apply(s, w, buffer->data + byte, lane);
      l->changes += memcmp(&old, buffer->data + byte, (size_t)s->size) != 0;
    }
    if (s->op != ATOMIC) move(s, w, (uintptr_t)buffer->data - buffer->base, address, 1u << lane, load);
    if (buffer->cells && l->fences && s->strong) hand_over(l, b, w, s, lane, address[lane] >> shift);
  }
}

static void global(Launch *l, Block *b, Warp *w, Site *s, int32_t pc, const uint64_t *address, uint32_t mask) {
  uint64_t width = (uint64_t)(s->size * s->count), low = address[0], high = address[0], any = 0;
  int load = s->op == LOAD;
  if (l->counting) count(s, address, mask);
  note(l, b, w, s, pc, GLOBAL, mask, address);
  l->changes += s->op == STORE;
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
      if (s->op != STORE && !b->written[place] && !comes(b, place)) missing |= 1u << lane;
      if (b->async) check_flight(l, b, pc, number, place, !load);
      if (load) {
        order_read(l, b, at, SHARED_RACE, pc, number, address[lane]);
        continue;
      }
      /* Writes of one value by several lanes of a store are no race; any other two writes are. */
      int theirs = (int)(at->write.thread - 1 - b->base), other = theirs % LANES;
      int one_store = at->write.pc == pc && at->write.time >= b->time;
      if (one_store && theirs / LANES == w - b->warps)
        one_store = other < lane && mask >> other & 1 && place - (address[other] >> shift) < (uint64_t)(width >> shift);
      int same = s->op == STORE && one_store && unchanged(s, w, lane, b->shared + address[lane], cell, l->grain);
      check_leaving(l, b, pc, number, place);
      order_write(l, b, at, SHARED_RACE, pc, number, address[lane] + (uint64_t)cell, same);
      at->agreed = 0;
      if (s->op == STORE) b->written[place] = 1;
    }
    if (s->op == STORE) move(s, w, (uintptr_t)b->shared, address, 1u << lane, 0);
  }
  for (int lane = 0; l->fences && s->strong && lane < LANES; lane++)
    if (mask >> lane & 1) hand_over(l, b, w, s, lane, address[lane] >> shift);
  for (int lane = 0; missing && lane < LANES; lane++)
    for (int other = 0; other < LANES; other++)
      if (missing >> other & 1 && mask >> lane & 1 && address[lane] == address[other]) missing |= 1u << lane;
  return missing;
}

/* Whether lanes read bytes that nothing has begun to write, although other warps may still issue a copy to them: then
 * the mistake is that these lanes don't wait. */
static int is_early(const Launch *l, const Block *b, Site *s, const uint64_t *address, uint32_t mask) {
  if (!b->async || b->idle > 1 || s->op != LOAD || s->space != SHARED || !l->checking) return 0;
  uint32_t concerned = readers(s, address, mask);
  for (int lane = 0; lane < LANES; lane++) {
    int64_t x = (int64_t)address[lane], end = x + s->size * s->count;
    if (!(concerned >> lane & 1) || x < 0 || end > l->shared_size) continue;
    for (uint64_t place = (uint64_t)(x / l->grain); (int64_t)place * l->grain < end; place++)
      if (!b->written[place] && !comes(b, place)) return 1;
  }
  return 0;
}

/* The result of these lanes comes from bytes that no thread has written: only a copy may read it. */
static void poison(Warp *w, const Site *s, int32_t pc, uint32_t missing) {
  if (!missing) return;
  w->poisoned = 1;
  for (int k = 0; s->op != STORE && k < s->count; k++) {
    int32_t offset = s->op == ATOMIC ? s->results[k] : s->values[k];
    if (offset == NONE) continue;
    w->poison[offset / 4] |= missing;
    w->poison_site[offset / 4] = pc;
  }
}

static void shared(Launch *l, Block *b, Warp *w, Site *s, int32_t pc, const uint64_t *address, uint32_t mask) {
  int load = s->op == LOAD;
  uint32_t good = inside(l, b, w, s, pc, address, mask), missing = 0;
  if (s->op != STORE && good != mask) zero(s, w, mask & ~good);
  if (!good) return;
  if (l->counting) count(s, address, good);
  if (!l->values && s->op != STORE) zero(s, w, good);
  if (l->values) {
    if (l->checking) missing = order_shared(l, b, w, s, pc, address, good);
    for (int lane = 0; s->op == ATOMIC && lane < LANES; lane++)
      if (good >> lane & 1) apply(s, w, b->shared + address[lane], lane);
    if (load || (s->op == STORE && !l->checking)) move(s, w, (uintptr_t)b->shared, address, good, load);
    poison(w, s, pc, missing);
  }
  note(l, b, w, s, pc, SHARED, good, address);
}

/* When a warp reached a site first after the last barrier. */
static inline void mark_first(const Block *b, Warp *w, int32_t site) {
  int64_t *known = &w->first[site];
  if (*known >> 40 != b->time) *known = (int64_t)b->time << 40 | ((w->steps + w->entry - w->left) & 0xFFFFFFFFFF);
}

/* Access one memory. */
static void resolved(Launch *l, Block *b, Warp *w, Site *s, int32_t pc, const uint64_t *address, uint32_t mask) {
  if (s->space == SHARED) {
    shared(l, b, w, s, pc, address, mask);
  } else if (s->space == LOCAL) {
    uint32_t missing = 0;
    for (int lane = 0; lane < LANES; lane++) {
      if (!(mask >> lane & 1)) continue;
      int64_t thread = (w - b->warps) * LANES + lane, x = (int64_t)address[lane], width = s->size * s->count;
      if (x < 0 || x + width > l->local_size || x & (width - 1)) {
        tell_lanes(l, b, w, x & (width - 1) ? MISALIGNED : OUT_OF_BOUNDS, pc, 1u << lane, x);
        if (s->op == LOAD) zero(s, w, 1u << lane);
      } else {
        uint8_t *written = b->local_written + thread * l->local_size + x;
        if (s->op == STORE) memset(written, 1, (size_t)width);
        else if (memchr(written, 0, (size_t)width)) missing |= 1u << lane;
        move(s, w, (uintptr_t)(b->local + thread * l->local_size), address, 1u << lane, s->op == LOAD);
      }
    }
    if (l->checking) poison(w, s, pc, missing);
  } else {
    global(l, b, w, s, pc, address, mask);
  }
}

/* A generic access: the upper bits of each lane's address name its memory. */
static int generic(Launch *l, Block *b, Warp *w, const Site *s, int32_t pc, const uint64_t *address, uint32_t mask) {
  for (int space = GLOBAL; space <= LOCAL; space++) {
    uint32_t lanes = 0, before = (uint32_t)l->events_count;
    uint64_t own[LANES];
    for (int k = 0; k < LANES; k++) {
      uint64_t window = address[k] >> 60 == 1 ? SHARED : address[k] >> 60 == 2 ? LOCAL : GLOBAL;
      if (mask >> k & 1 && window == (uint64_t)space) lanes |= 1u << k;
      own[k] = address[k] - ((uint64_t)space << 60);
    }
    if (!lanes) continue;
    if (space == LOCAL && s->op == ATOMIC) {
      l->stuck_pc = pc;
      l->status = UNSUPPORTED;
      return STOP;
    }
    for (int k = 0, first = __builtin_ctz(lanes); k < LANES; k++)
      if (!(lanes >> k & 1)) own[k] = own[first];
    resolved(l, b, w, &l->sites[s->array_start + space], pc, own, lanes);
    for (int32_t k = (int32_t)before; k < l->events_count; k++) l->events[k].space = (uint32_t)space;
  }
  return NEXT;
}

static int access(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  Site *s = &l->sites[i->site];
  mark_first(b, w, i->site);
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
  if (s->space == GENERIC) return generic(l, b, w, s, pc, address, mask);
  if (is_early(l, b, s, address, mask)) return AGAIN;
  resolved(l, b, w, s, pc, address, mask);
  return NEXT;
}

#endif
