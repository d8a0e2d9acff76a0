/* Calls of functions. Included by core.c alone. A frame has the registers of the lanes that called
 * together; each lane returns from its own last call. */
#ifndef WORKLOG_CALLS_H
#define WORKLOG_CALLS_H

#include "poison.h"

struct Frame {
  Frame *next, *callers[LANES]; /* next: in the list of free ones */
  uint32_t lanes;               /* those that have yet to return */
  int32_t pc, depth, room;
  int32_t stack; /* bytes of a thread's registers, here and in the callers' frames */
  /* stands for what it holds, and the callers' frames do: that stays until it is freed */
  uint64_t state;
  uint8_t data[]; /* of each register its lanes, and then its poison */
};

/* The registers of a call to its frame, or, for these lanes, back. */
static void keep(const Launch *l, Warp *w, Frame *f, uint32_t back) {
  const int32_t *kept = &l->lists[l->code[f->pc].target];
  uint8_t *data = f->data;
  for (int n = *kept++; n > 0; n--, kept += 2) {
    Poison *poison = poison_of(w, kept[0]), old;
    size_t size = kept[1] ? (size_t)kept[1] * LANES : sizeof back;
    if (!back) {
      memcpy(data, w->file + kept[0], size);
      memcpy(data + size, poison, sizeof *poison);
    } else if (!kept[1]) {
      uint32_t *now = AT(uint32_t, kept[0]);
      *now = (*now & ~back) | (*(uint32_t *)data & back);
    }
    FOR_LANES(k, kept[1] ? back : 0)
      memcpy(w->file + kept[0] + k * kept[1], data + k * kept[1], (size_t)kept[1]);
    memcpy(&old, data + size, sizeof old);
    if (back)
      *poison = (Poison){(poison->lanes & ~back) | (old.lanes & back),
                         old.lanes & back ? old.pc : poison->pc};
    data += size + sizeof *poison;
  }
}

/* A number that stands for the frames of a warp's lanes. */
static uint64_t hash_frames(uint64_t seed, Frame *const *frames) {
  uint64_t states[LANES];
  for (int k = 0; k < LANES; k++)
    states[k] = frames[k] ? frames[k]->state : 0;
  return hash(seed, states, sizeof states);
}

/* A free frame with room for these bytes, or a new one; NULL if there is no memory, or they are too
 * many. */
static Frame *frame_for(Launch *l, Block *b, Warp *w, int32_t needed) {
  Frame **place = &w->spare;
  while (*place && (*place)->room < needed)
    place = &(*place)->next;
  Frame *f = *place;
  if (f) {
    *place = f->next;
    return f;
  }
  int64_t size = (int64_t)sizeof *f + needed;
  if (l->frames + size > l->most_frames) {
    l->status = FRAMES_TOO_LARGE;
    return NULL;
  }
  f = room(l, &b->chunks, (size_t)size);
  if (!f)
    return NULL;
  f->room = needed;
  b->frames += size;
  l->frames += size;
  return f;
}

/* A call: each lane continues at its function, with a frame for all. */
static int call(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  const int32_t *kept = &l->lists[i->target], *functions = kept + 1 + 2 * *kept;
  int32_t needed = 0, depth = 0, stack = 0;
  for (int n = 0; n < *kept; n++)
    needed += (kept[2 + 2 * n] ? kept[2 + 2 * n] * LANES : 4) + (int32_t)sizeof(Poison);
  Frame *f = frame_for(l, b, w, needed);
  if (!f) {
    l->stuck_pc = pc;
    return STOP;
  }
  memcpy(f->callers, w->frame, sizeof f->callers);
  f->pc = pc;
  f->lanes = mask;
  keep(l, w, f, 0);
  f->state = hash(hash_frames((uint64_t)pc << 32 | mask, f->callers), f->data, (size_t)needed);
  FOR_LANES(k, mask) {
    int64_t target = i->a == NONE ? i->site : AT(int64_t, i->a)[k] - FIRST_FUNCTION;
    int known = 0;
    for (int n = 1; n <= *functions; n++)
      known |= functions[n] == target;
    const Frame *caller = f->callers[k];
    if (caller && caller->depth >= depth)
      depth = caller->depth + 1;
    if (caller && caller->stack > stack)
      stack = caller->stack;
    if (!known || depth > DEEPEST || stack + needed / LANES > STACK) {
      report_lanes(l, b, w, known ? CALLS_TOO_DEEP : NO_FUNCTION, pc, 1u << k,
                   target + FIRST_FUNCTION);
      l->status = ABORTED;
      return STOP;
    }
    w->frame[k] = f;
    push(w, (int32_t)target, 1u << k);
  }
  f->depth = depth;
  f->stack = stack + needed / LANES;
  return PARKED;
}

/* A return: lanes continue behind their calls, with the registers that they had there. */
static int give_back(Launch *l, Warp *w, uint32_t mask) {
  for (uint32_t lanes; mask; mask &= ~lanes) {
    Frame *f = w->frame[__builtin_ctz(mask)];
    lanes = 0;
    FOR_LANES(k, mask)
      lanes |= (uint32_t)(w->frame[k] == f) << k;
    keep(l, w, f, lanes);
    FOR_LANES(k, lanes)
      w->frame[k] = f->callers[k];
    push(w, f->pc + 1, lanes);
    f->lanes &= ~lanes;
    if (!f->lanes) {
      f->next = w->spare;
      w->spare = f;
    }
  }
  return PARKED;
}

#endif
