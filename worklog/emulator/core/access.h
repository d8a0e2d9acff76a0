/* Accesses to memory: resolve, bounds, order, count, move. Included by core.c alone. Global, shared
 * and local memory are Buffers; an access is an address for each lane of a mask, and the other
 * lanes have a valid lane's. */
#ifndef WORKLOG_ACCESS_H
#define WORKLOG_ACCESS_H

#include "arithmetic.h"
#include "count.h"
#include "order.h"
#include "poison.h"

/* The buffer that has an address, or NULL. */
static Buffer *buffer_at(Launch *l, uint64_t address) {
  for (int k = 0; k < l->buffers_count; k++)
    if (address - l->buffers[k].base < l->buffers[k].size)
      return &l->buffers[k];
  return NULL;
}

/* Local memory of a thread. */
static Buffer local_of(const Launch *l, const Block *b, int thread) {
  Buffer m = b->local;
  m.data += thread * b->local_stride;
  if (m.written)
    m.written += thread * b->local_stride / l->grain;
  return m;
}

/* A byte of the cluster's shared memory, for `width` bytes of a block's own, which has addresses
 * from 0 on, or of another one's, whose addresses mapa makes (ops.py); NOWHERE and its 32 bits
 * where these are not of such a memory. */
enum { WINDOW = 24, FIRST_WINDOW = 0x80 };
#define NOWHERE ((uint64_t)1 << 40)
static uint64_t located(const Launch *l, int rank, uint64_t x, uint64_t width) {
  uint32_t number = ((uint32_t)x + (1u << (WINDOW - 1))) >> WINDOW,
           far = number - FIRST_WINDOW < 64;
  int64_t offset = (int64_t)x;
  if (x >> 32 && x >> 32 != FULL)
    far = 0;
  if (far) {
    rank = (int32_t)(number - FIRST_WINDOW);
    offset = (int32_t)((uint32_t)x - (number << WINDOW));
  }
  if (l->blocks == 1 && !far)
    return x;
  int fits = rank < l->blocks && offset >= 0 && (uint64_t)offset + width <= (uint64_t)l->own_size;
  return fits ? (uint64_t)(rank * (int64_t)l->shared_stride + offset) : NOWHERE | (uint32_t)x;
}

/* The memory at an address of a site, NULL where there is none. Of local memory, a thread's. */
static Buffer *memory_of(Launch *l, Block *b, Site *s, uint64_t address) {
  if (s->space == SHARED)
    return &b->shared;
  if (s->space == LOCAL)
    return &b->local;
  Buffer *m = s->buffer == NONE ? NULL : &l->buffers[s->buffer];
  if (!m || address - m->base >= m->size)
    m = buffer_at(l, address);
  s->buffer = m ? m - l->buffers : NONE;
  return m;
}

/* Whether a memory has `width` bytes at an address. */
static int contains(const Buffer *m, uint64_t address, uint64_t width) {
  return address - m->base < m->size && m->size - (address - m->base) >= width;
}

/* The numbers of lanes, of `size` bytes at memory + address, to a register of their width, or from
 * it. Inline, so that the size is a constant. */
static inline __attribute__((always_inline)) void move_numbers(uint8_t *data, uintptr_t memory,
                                                               const uint64_t *address,
                                                               uint32_t mask, int form, int load,
                                                               size_t size) {
  if (form == ROW) {
    void *row = (void *)(memory + address[0]);
    memcpy(load ? data : row, load ? row : data, size * LANES);
    return;
  }
  if (load && form == SAME) {
    uint64_t same;
    memcpy(&same, (void *)(memory + address[0]), size);
    for (int k = 0; k < LANES; k++)
      memcpy(data + size * (size_t)k, &same, size);
    return;
  }
  if (load && form == APART) {
    for (int k = 0; k < LANES; k++)
      memcpy(data + size * (size_t)k, (void *)(memory + address[k]), size);
    return;
  }
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    int k = __builtin_ctz(rest);
    void *number = (void *)(memory + address[k]), *lane = data + size * (size_t)k;
    memcpy(load ? lane : number, load ? number : lane, size);
  }
}

/* The numbers of lanes, of `size` bytes at memory + address, to a register of `width` bytes,
 * extended, or from it. Inline, so that the sizes are constants. */
static inline __attribute__((always_inline)) void
move_narrow(const Site *s, uint8_t *data, uintptr_t memory, const uint64_t *address, uint32_t mask,
            size_t size, size_t width) {
  int unused = 64 - 8 * (int)size;
  FOR_LANES(k, mask) {
    void *number = (void *)(memory + address[k]), *lane = data + (size_t)k * width;
    uint64_t x = 0;
    memcpy(&x, s->op == LOAD ? number : lane, size);
    if (s->op != LOAD) {
      memcpy(number, &x, size);
      continue;
    }
    if (s->is_signed)
      x = (uint64_t)((int64_t)(x << unused) >> unused);
    memcpy(lane, &x, width);
  }
}

/* The bytes of lanes, at memory + address, to registers, or from them; what is narrower than a
 * register is extended. */
static inline void move(const Site *s, const Warp *w, uintptr_t memory, const uint64_t *address,
                        uint32_t mask, int form) {
  int load = s->op == LOAD;
  for (int e = 0; e < s->count; e++) {
    if (s->values[e] == NONE)
      continue;
    uint8_t *data = w->file + s->values[e];
    uintptr_t element = memory + (uintptr_t)(e * s->size);
    if (s->size == 8)
      move_numbers(data, element, address, mask, form, load, 8);
    else if (s->size == 4 && s->width == 4)
      move_numbers(data, element, address, mask, form, load, 4);
    else if (s->size == 2 && s->width == 2)
      move_narrow(s, data, element, address, mask, 2, 2);
    else if (s->size == 1 && s->width == 2)
      move_narrow(s, data, element, address, mask, 1, 2);
    else
      move_narrow(s, data, element, address, mask, (size_t)s->size, (size_t)s->width);
  }
}

/* The element that a byte of an access is in: its size is a power of two, and dividing is slow. */
static inline int element_of(const Site *s, int byte) {
  return byte >> __builtin_ctz((unsigned)s->size);
}

/* Whether a store leaves a cell of memory as it was. memory: at the lane's address */
static inline int unchanged(const Site *s, const Warp *w, int lane, const uint8_t *memory, int cell,
                            int grain) {
  const uint8_t *value = w->file + s->values[element_of(s, cell)] + lane * s->width;
  value += cell & (s->size - 1);
  return grain == 4 ? *(const uint32_t *)(memory + cell) == *(const uint32_t *)value
                    : !memcmp(memory + cell, value, (size_t)grain);
}

/* Zeros in the registers that lanes of an access load. */
static void zero(const Site *s, const Warp *w, uint32_t lanes) {
  const int32_t *registers = s->op == ATOMIC ? s->results : s->values;
  FOR_LANES(lane, s->op == STORE ? 0 : lanes)
    for (int k = 0; k < s->count; k++)
      if (registers[k] != NONE)
        memset(w->file + registers[k] + lane * s->width, 0, (size_t)s->width);
}

/* x, y and z, of which the last may not count, by an operation of ops.py. */
static uint64_t reduced(int op, uint64_t x, uint64_t y, uint64_t z) {
  switch (op) {
#include "reductions.inc"
  default:
    __builtin_unreachable();
  }
}

/* Whether an atomic of a lane changes memory. */
static int apply(const Site *s, const Warp *w, uint8_t *memory, int lane) {
  int changes = 0;
  for (int e = 0; e < s->count; e++, memory += s->size) {
    /* values: the operands; with one, the second does not count */
    uint64_t old = 0, values[2] = {0}, new;
    memcpy(&old, memory, (size_t)s->size);
    for (int k = 0; k < 2; k++)
      if (!k || s->values[1] != NONE)
        memcpy(&values[k], w->file + s->values[k ? 1 : e] + lane * s->width, (size_t)s->size);
    new = reduced(s->atomic, old, values[0], values[1]);
    changes |= memcmp(memory, &new, (size_t)s->size) != 0;
    memcpy(memory, &new, (size_t)s->size);
    if (s->results[e] != NONE)
      memcpy(w->file + s->results[e] + lane * s->width, &old, (size_t)s->size);
  }
  return changes;
}

/* The lanes whose addresses are valid; the others are byte, and load zeros. in: the memory that all
 * are in, or NULL. */
static inline uint32_t valid(Launch *l, Block *b, const Warp *w, Site *s, int32_t pc,
                             const Pattern *p, const uint64_t *address, uint32_t mask,
                             Buffer **in) {
  uint64_t width = (uint64_t)(s->size * s->count), low = address[__builtin_ctz(mask)] + p->low;
  uint64_t first = (uint64_t)s->array_start, size = (uint64_t)s->array_size, inner = low;
  int whole = s->array_size == NONE || s->space == CONSTANT,
      crooked_any = ((low | p->bits) & (width - 1)) != 0;
  Buffer *m = *in = memory_of(l, b, s, low);
  int fits =
      m && contains(m, low, width) && p->span <= m->size - width - (low - m->base) && !crooked_any;
  fits = fits && (s->op == LOAD || m->writable);
  if (s->space == SHARED && l->blocks > 1)
    inner %= (uint64_t)l->shared_stride;
  if (fits && (whole || (inner >= first && inner + p->span + width <= first + size)))
    return mask;
  uint32_t wrong[4] = {0};
  *in = NULL;
  FOR_LANES(lane, mask) {
    uint64_t x = address[lane];
    m = memory_of(l, b, s, x);
    int outside = !m || !contains(m, x, width), crooked = (x & (width - 1)) != 0;
    if (outside && (!crooked || s->space == SHARED))
      wrong[OUT_OF_BOUNDS] |= 1u << lane;
    else if (crooked)
      wrong[MISALIGNED] |= 1u << lane;
    else if (s->op != LOAD && !m->writable)
      wrong[READ_ONLY] |= 1u << lane;
    if (s->space == SHARED && l->blocks > 1)
      x %= (uint64_t)l->shared_stride;
    if (!outside && !whole && (x < first || x + width > first + size))
      wrong[OUTSIDE_ARRAY] |= 1u << lane;
  }
  for (int32_t kind = OUT_OF_BOUNDS; kind <= OUTSIDE_ARRAY; kind++) {
    if (!wrong[kind])
      continue;
    uint64_t x = address[__builtin_ctz(wrong[kind])] - (kind == OUTSIDE_ARRAY ? first : 0);
    report_lanes(l, b, w, kind, pc, wrong[kind], (int64_t)x);
  }
  uint32_t bad = wrong[OUT_OF_BOUNDS] | wrong[MISALIGNED] | wrong[READ_ONLY];
  zero(s, w, bad & mask);
  return mask & ~bad;
}

/* Writes of one value to shared memory are no race if one line of the source does them. */
static int by_one_line(const Launch *l, const Stamp *last, const Site *s) {
  return last->thread && l->sites[l->code[last->pc].site].line == s->line;
}

/* Order of an access of a lane; its elements, a bit each, of which no thread has written some bytes
 * that it reads. at: the address in the memory. */
static inline int order_lane(Launch *l, Block *b, const Warp *w, const Site *s, int32_t pc,
                             Buffer *m, int lane, uint64_t address, uint64_t at) {
  int width = s->size * s->count, shift = __builtin_ctz((unsigned)l->grain);
  int thread = first_of(b, w) + lane, missing = 0;
  int shared = m == &b->shared;
  for (int cell = 0; cell < width; cell += l->grain) {
    uint64_t place = (at + (uint64_t)cell) >> shift, byte = address;
    if (shared && s->op != LOAD)
      byte += (uint64_t)cell;
    if (s->op != STORE && m->written && !m->written[place] && !(shared && !is_empty(b, place)))
      missing |= 1 << element_of(s, cell);
    int same = s->op == STORE && m->cells && unchanged(s, w, lane, m->data + at, cell, l->grain);
    if (same && shared)
      same = by_one_line(l, &m->cells[place].write, s);
    if (s->op == LOAD && s->read_only && m->cells && m->cells[place].write.thread)
      report_race(l, b, STALE_READ, pc, &m->cells[place].write, thread, byte);
    else if (m->cells)
      order(l, b, m, place, pc, thread, byte, s->op != LOAD, same);
    if (s->op == STORE && m->written)
      m->written[place] = !(w->poisoned && poisoned(w, s->values[element_of(s, cell)]) >> lane & 1);
  }
  return missing;
}

/* Of lanes that read `count` cells each of shared memory, those that are left: the others read what
 * was written before the last barrier. Inline, so that the count is a constant. The block's fields
 * are copied first: the compiler can't know that no cell overlaps them, and would load them for
 * each cell again. */
static inline __attribute__((always_inline)) uint32_t order_quiet_cells(const Block *b, Stamp now,
                                                                        const uint64_t *address,
                                                                        int shift, uint32_t lanes,
                                                                        int count) {
  Cell *all_cells = b->shared.cells;
  const uint8_t *all_written = b->shared.written;
  uint32_t time = b->time, left = 0, first = now.thread;
  int written_since = b->written_at >= time;
  for (; lanes; lanes &= lanes - 1) {
    int lane = __builtin_ctz(lanes), quiet = 1;
    uint64_t place = address[lane] >> shift;
    Cell *cells = &all_cells[place];
    now.thread = first + (uint32_t)lane;
    for (int k = 0; k < count; k++)
      quiet &= all_written[place + (uint64_t)k];
    if (written_since)
      for (int k = 0; k < count; k++)
        quiet &= cells[k].write.time < time;
    if (!quiet) {
      left |= 1u << lane;
      continue;
    }
    for (int k = 0; k < count; k++)
      has_read(time, &cells[k], now);
  }
  return left;
}

/* The same of an access of any size. */
static inline uint32_t order_quiet(const Launch *l, const Block *b, const Warp *w, const Site *s,
                                   int32_t pc, const uint64_t *address, uint32_t lanes) {
  int count = s->size * s->count / l->grain, shift = __builtin_ctz((unsigned)l->grain);
  Stamp lane_0 = {b->base + (uint32_t)first_of(b, w) + 1, b->clock, pc};
  if (count == 1)
    return order_quiet_cells(b, lane_0, address, shift, lanes, 1);
  if (count == 4)
    return order_quiet_cells(b, lane_0, address, shift, lanes, 4);
  return order_quiet_cells(b, lane_0, address, shift, lanes, count);
}

/* Record which bytes of a variable a load reads. */
static void mark_read(const Buffer *m, const Site *s, const uint64_t *address, uint32_t mask) {
  FOR_LANES(lane, mask)
    memset(m->read + (address[lane] - m->base), 1, (size_t)(s->size * s->count));
}

/* Lanes whose addresses are valid access a memory: order, and move. p: how all of these addresses
 * lie, or NULL. */
static void access_memory(Launch *l, Block *b, Warp *w, Site *s, int32_t pc, Buffer *m,
                          const Pattern *p, const uint64_t *address, uint32_t mask) {
  int load = s->op == LOAD, ordered = m->cells || m->written,
      strong = m->cells && l->fences && s->strong;
  int shift = __builtin_ctz((unsigned)l->grain);
  uintptr_t memory = (uintptr_t)m->data - m->base;
  uint32_t missing = 0, concerned = mask;
  uint8_t elements[LANES] = {0}; /* of each lane those that are missing */
  if (!m->data) {
    zero(s, w, mask);
    return;
  }
  if (load && m->read)
    mark_read(m, s, address, mask);
  if (load && !strong && p)
    concerned = p->readers;
  if (!ordered && s->op != ATOMIC)
    concerned = 0;
  else if (load && m == &b->shared && !b->async && !strong)
    concerned = order_quiet(l, b, w, s, pc, address, concerned);
  for (; concerned; concerned &= concerned - 1) {
    int lane = __builtin_ctz(concerned);
    uint64_t at = address[lane] - m->base;
    if (ordered)
      elements[lane] = (uint8_t)order_lane(l, b, w, s, pc, m, lane, address[lane], at);
    missing |= (uint32_t)(elements[lane] != 0) << lane;
    if (s->op == ATOMIC && apply(s, w, m->data + at, lane))
      l->changes += s->space != SHARED;
    if (s->op == STORE)
      move(s, w, memory, address, 1u << lane, UNLIKE);
    if (strong)
      hand_over(l, b, w, s, lane, address[lane] >> shift);
  }
  if (load || (s->op == STORE && !ordered))
    move(s, w, memory, address, mask, p ? p->form : UNLIKE);
  if (!missing)
    return;
  FOR_LANES(lane, mask)
    FOR_LANES(other, missing)
      if (address[lane] == address[other]) {
        missing |= 1u << lane;
        elements[lane] |= elements[other];
      }
  /* Only a copy may read what nobody has written, and of a wide load each element is one. */
  for (int k = 0; k < s->count; k++) {
    uint32_t bad = 0;
    FOR_LANES(lane, missing)
      bad |= (uint32_t)(elements[lane] >> k & 1) << lane;
    set_poison(w, load ? s->values[k] : s->results[k], missing, bad, pc);
  }
}

/* Another block's shared memory is there once that is known to run, until its threads have exited.
 */
static void check_presence(Launch *l, Block *b, const Warp *w, int32_t pc, const uint64_t *address,
                           uint32_t mask) {
  int threads = own_warps(l, b) * LANES;
  uint32_t early = 0, late = 0;
  FOR_LANES(k, mask) {
    int rank = (int)(address[k] / (uint64_t)l->shared_stride),
        known = b->met || rank == rank_of(l, b, w);
    const VectorClock *own = &b->clocks[first_of(b, w) + k];
    for (int n = rank * threads; n < (rank + 1) * threads && !known; n++)
      known = time_of(&own->known.own, n) > 0;
    early |= (uint32_t)!known << k;
    late |= (b->left >> rank & 1) << k;
  }
  if (early)
    report_lanes(l, b, w, NOT_STARTED, pc, early, 0);
  if (late)
    report_lanes(l, b, w, BLOCK_LEFT, pc, late, 0);
}

/* Access one memory. */
static void resolved(Launch *l, Block *b, Warp *w, Site *s, int32_t pc, const uint64_t *address,
                     uint32_t mask) {
  Buffer *in;
  Pattern *p = pattern_of(s, address, mask);
  uint32_t good = valid(l, b, w, s, pc, p, address, mask, &in),
           counted = s->space == SHARED ? good : mask;
  if (l->counting && counted && s->space == LOCAL)
    count_local(s, address, counted);
  else if (l->counting && counted)
    count(s, counted == mask ? p : pattern_of(s, address, counted), address, counted);
  if (s->space == GLOBAL) {
    note(l, b, w, s, pc, GLOBAL, mask, address);
    l->changes += s->op == STORE;
  }
  if (l->blocks > 1 && s->space == SHARED && l->checking)
    check_presence(l, b, w, pc, address, good);
  if (in && s->space != LOCAL)
    access_memory(l, b, w, s, pc, in, p, address, mask);
  for (uint32_t rest = in && s->space != LOCAL ? 0 : good, lanes; rest; rest &= ~lanes) {
    int first = __builtin_ctz(rest);
    Buffer *m = memory_of(l, b, s, address[first]), own;
    lanes = 1u << first;
    if (s->space == LOCAL) {
      own = local_of(l, b, first_of(b, w) + first);
      m = &own;
    } else
      FOR_LANES(k, rest)
        lanes |= (uint32_t)(address[k] - m->base < m->size) << k;
    access_memory(l, b, w, s, pc, m, NULL, address, lanes);
  }
  if (s->space == SHARED && good)
    note(l, b, w, s, pc, SHARED, good, address);
}

/* A generic access: the upper bits of each lane's address name its memory. */
static int generic(Launch *l, Block *b, Warp *w, const Site *s, int32_t pc, const uint64_t *address,
                   uint32_t mask) {
  for (uint32_t space = GLOBAL; space <= LOCAL; space++) {
    uint32_t lanes = 0;
    uint64_t own[LANES];
    for (int k = 0; k < LANES; k++) {
      uint64_t window =
          address[k] >> 60 == SHARED || address[k] >> 60 == LOCAL ? address[k] >> 60 : GLOBAL;
      lanes |= (uint32_t)(mask >> k & 1 && window == space) << k;
      own[k] = address[k] - ((uint64_t)space << 60);
    }
    if (!lanes)
      continue;
    FOR_LANES(k, space == SHARED ? lanes : 0)
      own[k] = located(l, rank_of(l, b, w), own[k], (uint64_t)(s->size * s->count));
    if (space == LOCAL && s->op == ATOMIC) {
      l->stuck_pc = pc;
      l->status = UNSUPPORTED;
      return STOP;
    }
    for (int k = 0, first = __builtin_ctz(lanes); k < LANES; k++)
      if (!(lanes >> k & 1))
        own[k] = own[first];
    l->space = space;
    /* a matrix's are its lines' */
    memcpy(l->sites[s->array_start + space].values, s->values, sizeof s->values);
    resolved(l, b, w, &l->sites[s->array_start + space], pc, own, lanes);
    l->space = 0;
  }
  return NEXT;
}

/* Whether lanes read bytes that nothing has begun to write, although other warps may still issue a
 * copy to them: then the mistake is that these lanes don't wait. */
static int is_early(const Launch *l, const Block *b, Site *s, const uint64_t *address,
                    uint32_t mask) {
  if (!b->async || b->idle > 1 || s->op != LOAD || s->space != SHARED || !l->checking)
    return 0;
  uint64_t width = (uint64_t)(s->size * s->count);
  uint32_t concerned = pattern_of(s, address, mask)->readers;
  FOR_LANES(lane, concerned)
    FOR_CELLS(place, address[lane], contains(&b->shared, address[lane], width) ? width : 0,
              l->grain)
      if (is_empty(b, place))
        return 1;
  return 0;
}

/* When a warp reached a site first after the last barrier. */
static inline void mark_first(const Block *b, Warp *w, int32_t site) {
  int64_t *known = &w->first[site];
  if (*known >> 40 != b->time)
    *known = (int64_t)b->time << 40 | ((w->steps + w->entry - w->left) & 0xFFFFFFFFFF);
}

/* Lanes access these addresses. */
static int access_at(Launch *l, Block *b, Warp *w, int32_t pc, int32_t site, uint64_t *address,
                     uint32_t mask) {
  Site *s = &l->sites[site];
  mark_first(b, w, site);
  if (mask != FULL) {
    uint64_t first = address[__builtin_ctz(mask)];
    for (int k = 0; k < LANES; k++)
      address[k] = mask >> k & 1 ? address[k] : first;
  }
  if (s->space == GENERIC)
    return generic(l, b, w, s, pc, address, mask);
  if (is_early(l, b, s, address, mask))
    return AGAIN;
  resolved(l, b, w, s, pc, address, mask);
  return NEXT;
}

/* The addresses that a site takes from a register. */
static void addresses(const Launch *l, const Block *b, const Warp *w, const Site *s, int32_t offset,
                      int wide, uint64_t *out) {
  uint64_t high = 0;
  if (wide) {
    const uint64_t *register_of = AT(uint64_t, offset);
    for (int k = 0; k < LANES; k++)
      out[k] = register_of[k] + (uint64_t)s->offset;
  } else if (s->space == SHARED || s->space == LOCAL) {
    const int32_t *register_of = AT(int32_t, offset);
    for (int k = 0; k < LANES; k++)
      out[k] = (uint64_t)(register_of[k] + s->offset);
  } else {
    const uint32_t *register_of = AT(uint32_t, offset);
    for (int k = 0; k < LANES; k++)
      out[k] = register_of[k] + (uint64_t)s->offset;
  }
  if (s->space != SHARED)
    return;
  for (int k = 0; k < LANES; k++)
    high |= out[k] >> WINDOW;
  for (int k = 0; k < LANES && (high || l->blocks > 1); k++)
    out[k] = located(l, rank_of(l, b, w), out[k], (uint64_t)(s->size * s->count));
}

/* An instruction that accesses memory. */
static int access(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  uint64_t address[LANES];
  addresses(l, b, w, &l->sites[i->site], i->a, l->sites[i->site].wide, address);
  return access_at(l, b, w, pc, i->site, address, mask);
}

#endif
