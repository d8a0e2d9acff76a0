/* Registers whose values must not be used. Included by core.c alone.
 *
 * Lanes of a register are poisoned by the instruction that gave them such a value. A load of memory that was not written:
 * a copy passes that on, any other instruction is a use. A shuffle from a lane that does not take part: what computes a
 * value of the lane passes that on; a use is what leaves the lane or decides: an access, a branch, a vote. */
#ifndef WORKLOG_POISON_H
#define WORKLOG_POISON_H

#include "access.h"

/* Lanes in which an operand is poisoned. */
static uint32_t poisoned(const Warp *w, int32_t offset) { return offset == NONE ? 0 : w->poison[offset / 4]; }

static void set_poison(Warp *w, int32_t offset, uint32_t lanes, uint32_t bad, int32_t cause) {
  if (offset == NONE) return;
  w->poison[offset / 4] = (w->poison[offset / 4] & ~lanes) | bad;
  if (bad) w->poison_site[offset / 4] = cause;
}

/* An instruction uses an operand. */
static void use(Launch *l, Block *b, Warp *w, int32_t pc, int32_t offset, uint32_t lanes) {
  uint32_t bad = poisoned(w, offset) & lanes;
  if (!bad) return;
  int32_t cause = w->poison_site[offset / 4], shuffled = l->code[cause].kind == SHUFFLE;
  Event *event = tell(l, shuffled ? UNDEFINED_SHUFFLE : UNINITIALISED, cause, pc, __builtin_popcount(bad));
  if (event) {
    event->block = b->number;
    event->thread = (int32_t)(w - b->warps) * LANES + __builtin_ctz(bad);
    event->lanes = bad;
  }
  if (!shuffled) w->poison[offset / 4] = 0;
}

static void check_poison(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  if (i->kind == SHUFFLE || i->kind == WARP) return; /* when the lanes have met */
  int computes = i->kind == ALU || i->kind == PACK || i->kind == UNPACK;
  const int32_t operands[4] = {i->a, i->b, i->kind == UNPACK ? NONE : i->c, i->kind == ALU ? i->site : NONE};
  uint32_t passed[4] = {0}, bad = 0;
  int32_t cause = NONE;
  for (int k = 0; k < 4; k++) {
    if (!(poisoned(w, operands[k]) & mask)) continue;
    int32_t own = w->poison_site[operands[k] / 4];
    if ((i->copies == COPIES && !k) || (computes && l->code[own].kind == SHUFFLE)) {
      passed[k] = w->poison[operands[k] / 4] & mask;
      cause = own > cause ? own : cause;
    } else {
      use(l, b, w, pc, operands[k], mask);
    }
  }
  bad = passed[0] | passed[1] | passed[2] | passed[3];
  if (bad && (i->copies == CONJUNCTION || i->copies == DISJUNCTION)) {
    /* An operand that is defined may decide alone. */
    uint32_t flip = i->copies == CONJUNCTION ? FULL : 0, a = *AT(uint32_t, i->a) ^ flip, other = *AT(uint32_t, i->b) ^ flip;
    bad &= ~((a & ~passed[0]) | (other & ~passed[1]));
  } else if (bad && i->copies == SELECTION) {
    uint32_t chosen = *AT(uint32_t, i->c);
    bad = (chosen & passed[0]) | (~chosen & passed[1]) | passed[2];
  }
  if (i->kind == ACCESS) {
    const Site *s = &l->sites[i->site];
    for (int k = 0; k < (s->op == LOAD ? s->count : 4); k++) {
      if (s->op == LOAD) set_poison(w, s->values[k], mask, 0, NONE);
      else use(l, b, w, pc, s->values[k], mask);
    }
    for (int k = 0; s->op == ATOMIC && k < s->count; k++) set_poison(w, s->results[k], mask, 0, NONE);
  }
  set_poison(w, i->d, mask, bad, cause);
  if (i->kind == UNPACK) set_poison(w, i->c, mask, bad, cause);
}

#endif
