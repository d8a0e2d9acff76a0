/* Lanes of a warp that meet. Included by core.c alone.
 *
 * PTX ISA, vote.sync, match.sync, redux.sync and shfl.sync: a thread waits until all non-exited
 * threads of its member mask have executed the same instruction with the same mask. That may be at
 * several places of the code; with .aligned it is one place, and all threads are members. */
#ifndef WORKLOG_WARP_H
#define WORKLOG_WARP_H

#include "arithmetic.h"
#include "blocks.h"

/* Lanes that execute instructions of one kind together. at: the instruction of each lane; of
 * others, the first one. */
typedef struct {
  const Path *places;
  int count;
  uint32_t active, names[LANES]; /* names: the member mask of each lane */
  int32_t at[LANES];
} Meeting;

/* Whether lanes at two instructions may meet. */
static int can_meet(const Launch *l, int32_t pc, int32_t other) {
  return pc == other || (l->code[pc].meets != ALIGNED && l->code[pc].meets == l->code[other].meets);
}

/* The meeting of lanes at these places. */
static Meeting meeting_of(const Launch *l, const Warp *w, const Path *places, int count) {
  Meeting m = {.places = places, .count = count};
  for (int n = 0; n < count; n++) {
    m.active |= places[n].mask;
    FOR_LANES(k, n ? places[n].mask : FULL)
      m.at[k] = places[n].pc;
  }
  for (int k = 0; k < LANES; k++) {
    const Instruction *i = &l->code[m.at[k]];
    m.names[k] = i->meets <= 0 ? FULL : AT(uint32_t, i->site)[k];
  }
  return m;
}

/* The lanes of a meeting with one lane's mask. */
static uint32_t group(const Meeting *m, int lane) {
  uint32_t out = 0;
  for (int k = 0; k < LANES; k++)
    out |= (uint32_t)(m->names[k] == m->names[lane]) << k;
  return out & m->active;
}

/* The lanes among these at one place whose members have all come to it, or with the same mask to
 * another place. */
static uint32_t complete(const Meeting *m, const Warp *w, uint32_t here) {
  uint32_t out = 0;
  FOR_LANES(k, here)
    if (!(m->names[k] & w->live & ~(here | group(m, k))))
      out |= 1u << k;
  return out;
}

/* Before lanes execute: report misuses of member masks. Lanes that are elsewhere are reported at
 * the first place. */
static void check_members(Launch *l, Block *b, Warp *w, const Meeting *m) {
  uint32_t outside = 0, absent = 0, live = w->live | w->lived, active = m->active;
  FOR_LANES(k, active) {
    outside |= ~m->names[k] & 1u << k;
    absent |= m->names[k] & ~group(m, k);
  }
  const uint32_t wrong[4] = {outside, absent & active, absent & live & ~active, absent & ~live};
  for (int kind = 0; kind < 4; kind++) {
    for (int n = 0; n < m->count; n++) {
      uint32_t lanes = wrong[kind] & (n ? m->places[n].mask : m->places[n].mask | ~active);
      if (lanes)
        report_lanes(l, b, w, NOT_A_MEMBER + kind, m->places[n].pc, lanes, 0);
    }
  }
  w->lived = 0;
}

/* shfl.sync: the lane that a lane reads; out of its segment: NONE. */
static int source(int mode, int lane, uint32_t operand, uint32_t limit) {
  int distance = (int)(operand & 31), clamp = (int)(limit & 31), segment = (int)(limit >> 8 & 31);
  int low = lane & segment, high = low | (clamp & ~segment), from = lane - distance;
  if (mode == UP)
    return from >= high ? from : NONE;
  from = mode == DOWN        ? lane + distance
         : mode == BUTTERFLY ? lane ^ distance
                             : (low | (distance & ~segment));
  return from <= high ? from : NONE;
}

/* The value of a lane outside of the member mask, or one that does not execute the shuffle, is
 * undefined; here it is its last one. */
static void shuffle(const Launch *l, Warp *w, const Meeting *m, uint32_t *out, uint32_t *valid) {
  uint32_t bad = 0;
  int32_t cause = NONE;
  for (int k = 0; k < LANES; k++) {
    const Instruction *i = &l->code[m->at[k]];
    int from = source(i->op, k, AT(uint32_t, i->b)[k], AT(uint32_t, i->c)[k]);
    *valid |= (uint32_t)(from != NONE) << k;
    if (from == NONE)
      from = k;
    int present = m->active >> from & 1;
    int32_t value = present ? l->code[m->at[from]].a : i->a, earlier = NONE;
    out[k] = AT(uint32_t, value)[from];
    if (poisoned(w, value) >> from & 1)
      earlier = poison_of(w, value)->pc;
    if ((!present || !(m->names[k] >> from & 1)) && m->at[k] > earlier)
      earlier = m->at[k];
    if (earlier == NONE || !(m->active >> k & 1))
      continue;
    bad |= 1u << k;
    cause = earlier > cause ? earlier : cause;
  }
  for (int n = 0; n < m->count; n++) {
    const Instruction *i = &l->code[m->places[n].pc];
    set_poison(w, i->d, m->places[n].mask, bad & m->places[n].mask, cause);
    set_poison(w, i->target, m->places[n].mask, bad & m->places[n].mask, cause);
  }
}

/* Of the lanes of one mask: votes, matches, reductions. second: the second result, a predicate. */
static void exchange(int op, const uint64_t *value, uint32_t lanes, uint32_t *out,
                     uint32_t *second) {
  int first = __builtin_ctz(lanes);
  uint32_t votes = 0;
  uint64_t total = value[first];
  FOR_LANES(k, lanes) {
    votes |= (uint32_t)(value[k] != 0) << k;
    if (k != first && op >= REDUCE)
      total = reduced(op - REDUCE, total, value[k], 0);
  }
  FOR_LANES(k, lanes) {
    uint32_t same = 0;
    for (int j = 0; op >= MATCH_ANY && op < REDUCE && j < LANES; j++)
      same |= (uint32_t)(value[j] == value[k]) << j;
    same &= lanes;
    switch (op) {
    case ANY:
      out[k] = votes != 0;
      break;
    case ALL:
      out[k] = votes == lanes;
      break;
    case UNIFORM:
      out[k] = votes == lanes || !votes;
      break;
    case ACTIVE:
      out[k] = lanes;
      break;
    case BALLOT:
      out[k] = votes;
      break;
    case ELECT:
      out[k] = (uint32_t)first;
      *second |= (uint32_t)(k == first) << k;
      break;
    case MATCH_ANY:
    case WIDE_MATCH_ANY:
      out[k] = same;
      break;
    case MATCH_ALL:
    case WIDE_MATCH_ALL:
      out[k] = same == lanes ? lanes : 0;
      *second |= (uint32_t)(same == lanes) << k;
      break;
    default:
      out[k] = (uint32_t)total;
    }
  }
}

/* Set a lane's bit of a predicate. */
static void set_bit(const Warp *w, int32_t offset, int lane, uint32_t bit) {
  if (offset != NONE)
    *AT(uint32_t, offset) = (*AT(uint32_t, offset) & ~(1u << lane)) | bit << lane;
}

/* Lanes at these places execute their instructions together: shuffles, votes, matches, reductions,
 * bar.warp.sync. */
static int together(Launch *l, Block *b, Warp *w, const Path *places, int count) {
  const Meeting m = meeting_of(l, w, places, count);
  const Instruction *i = &l->code[places[0].pc];
  int votes = i->kind == WARP && i->op >= ANY && i->op <= UNIFORM;
  uint32_t out[LANES] = {0}, second = 0;
  uint64_t value[LANES] = {0};
  for (int n = 0; w->poisoned && n < count; n++) {
    const Instruction *own = &l->code[places[n].pc];
    const int32_t used[] = {own->b, own->c, own->meets > 0 ? own->site : NONE, own->a};
    use_all(l, b, w, places[n].pc, used, own->kind == WARP ? 4 : 3, places[n].mask);
    if (own->kind != WARP)
      continue;
    set_poison(w, own->d, places[n].mask, 0, NONE);
    set_poison(w, own->target, places[n].mask, 0, NONE);
  }
  for (int k = 0; k < LANES && i->kind == WARP && i->op != SYNCHRONISE; k++) {
    int32_t a = l->code[m.at[k]].a;
    if (i->op >= ANY && i->op <= BALLOT)
      value[k] = *AT(uint32_t, a) >> k & 1;
    else if (i->op >= WIDE_MATCH_ANY && i->op < REDUCE)
      value[k] = AT(uint64_t, a)[k];
    else if (a != NONE)
      value[k] = AT(uint32_t, a)[k];
  }
  if (i->kind == SHUFFLE)
    shuffle(l, w, &m, out, &second);
  for (uint32_t left = m.active, lanes; i->kind == WARP && left; left &= ~lanes) {
    lanes = group(&m, __builtin_ctz(left));
    if (i->op == SYNCHRONISE)
      meet_lanes(l, b, w, lanes);
    else
      exchange(i->op, value, lanes, out, &second);
  }
  FOR_LANES(k, i->kind == WARP && i->op == SYNCHRONISE ? 0 : m.active) {
    const Instruction *own = &l->code[m.at[k]];
    if (votes)
      set_bit(w, own->d, k, out[k]);
    else if (own->d != NONE)
      AT(uint32_t, own->d)[k] = out[k];
    set_bit(w, own->target, k, second >> k & 1);
  }
  return NEXT;
}

/* Waiting. */

/* Hold lanes that reach an instruction at which lanes meet, if they can't execute it at once. */
static int meet(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask,
                uint32_t lanes) {
  int whole = mask == FULL, n = 0;
  /* those whose guard lets them pass, or that are about to exit */
  uint32_t leaving = lanes & ~mask;
  for (int k = 0; k < LANES && whole && i->meets != ALIGNED; k++)
    whole = AT(uint32_t, i->site)[k] == FULL;
  if (whole)
    return NEXT;
  for (int k = 0; k < w->paths_count; k++) {
    const Instruction *there = &l->code[w->paths[k].pc];
    if (there->kind == EXIT && there->guard == NONE)
      leaving |= w->paths[k].mask;
  }
  w->lived |= w->live & ~leaving;
  while (n < w->held_count && w->held[n].pc < pc)
    n++;
  if (n == w->held_count || w->held[n].pc != pc) {
    const Path here = {pc, mask};
    const Meeting m = meeting_of(l, w, &here, 1);
    if (complete(&m, w, mask) == mask) {
      check_members(l, b, w, &m);
      return NEXT;
    }
    memmove(&w->held[n + 1], &w->held[n], sizeof(Path) * (size_t)(w->held_count++ - n));
    w->held[n] = (Path){pc, 0};
  }
  w->held[n].mask |= mask;
  /* They execute the block of code later. */
  l->executed[2 * i->block] -= mask == lanes;
  l->executed[2 * i->block + 1] -= __builtin_popcount(mask);
  return PARKED;
}

/* Lanes that have all met at one place, which execute its instruction next; those that meet at
 * several places have done it together. The mask is 0 where there are none, or other lanes are at a
 * lower instruction. */
static Path met(Launch *l, Block *b, Warp *w) {
  for (int first = 0; first < w->held_count; first++) {
    int lowest = next_path(w), count = 0, ready_count = 0, left_count = 0, known = 0;
    int32_t pc = w->held[first].pc;
    Path places[LANES], ready[LANES], left[LANES];
    if (lowest >= 0 && w->held[0].pc >= w->paths[lowest].pc)
      break;
    for (int n = 0; n < w->held_count; n++) {
      if (!can_meet(l, pc, w->held[n].pc))
        continue;
      known |= n < first;
      places[count++] = w->held[n];
    }
    if (known)
      continue;
    const Meeting all = meeting_of(l, w, places, count);
    int forced = w->forced != NONE && can_meet(l, w->forced, pc);
    for (int n = 0; n < w->held_count; n++) {
      Path place = w->held[n];
      uint32_t come =
          can_meet(l, pc, place.pc) ? forced ? place.mask : complete(&all, w, place.mask) : 0;
      if (come)
        ready[ready_count++] = (Path){place.pc, come};
      if (place.mask & ~come)
        left[left_count++] = (Path){place.pc, place.mask & ~come};
    }
    if (!ready_count)
      continue;
    memcpy(w->held, left, sizeof(Path) * (size_t)left_count);
    w->held_count = left_count;
    w->forced = NONE;
    const Meeting m = meeting_of(l, w, ready, ready_count);
    check_members(l, b, w, &m);
    if (ready_count == 1)
      return ready[0];
    together(l, b, w, ready, ready_count);
    for (int n = 0; n < ready_count; n++) {
      l->executed[2 * l->code[ready[n].pc].block]++;
      l->executed[2 * l->code[ready[n].pc].block + 1] += __builtin_popcount(ready[n].mask);
      push(w, ready[n].pc + 1, ready[n].mask);
    }
    first = -1;
  }
  return (Path){NONE, 0};
}

/* Where no other lane can run: the lanes of the block that wait first do so no longer. Whether
 * there are any. */
static int force(const Launch *l, Block *b) {
  int32_t first = INT32_MAX;
  for (int k = 0; k < b->warps_count; k++)
    if (b->warps[k].held_count && b->warps[k].held[0].pc < first)
      first = b->warps[k].held[0].pc;
  for (int k = 0; k < b->warps_count && first != INT32_MAX; k++)
    for (int n = 0; n < b->warps[k].held_count; n++)
      if (can_meet(l, first, b->warps[k].held[n].pc))
        b->warps[k].forced = first;
  return first != INT32_MAX;
}

#endif
