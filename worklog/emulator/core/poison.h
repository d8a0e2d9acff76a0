/* Registers whose values must not be used. Included by core.c alone.
 *
 * Lanes of a register are poisoned by the instruction that gave them such a value: a load of memory
 * that was not written, or a shuffle from a lane that does not take part. What computes a value of
 * the lane passes that on; a use is what leaves the block or decides: an access, a branch, a vote.
 * Any use of a wgmma's result before its wait is one. */
#ifndef WORKLOG_POISON_H
#define WORKLOG_POISON_H

#include "state.h"

/* The poison of a register. */
static Poison *poison_of(const Warp *w, int32_t offset) { return &w->poison[offset / SLOT]; }

/* Lanes in which an operand is poisoned. */
static uint32_t poisoned(const Warp *w, int32_t offset) {
  return offset == NONE ? 0 : poison_of(w, offset)->lanes;
}

/* Lanes of a register get values, and those that are bad get poison. */
static void set_poison(Warp *w, int32_t offset, uint32_t lanes, uint32_t bad, int32_t cause) {
  if (offset == NONE || (!bad && !w->poisoned))
    return;
  Poison *poison = poison_of(w, offset);
  poison->lanes = (poison->lanes & ~lanes) | bad;
  if (bad) {
    poison->pc = cause;
    w->poisoned = 1;
  }
}

/* An instruction uses an operand. */
static void use(Launch *l, Block *b, Warp *w, int32_t pc, int32_t offset, uint32_t lanes) {
  uint32_t bad = poisoned(w, offset) & lanes;
  if (!bad)
    return;
  Poison *poison = poison_of(w, offset);
  int shuffled = l->code[poison->pc].kind == SHUFFLE;
  report(l, b,
         (Event){.kind = shuffled ? UNDEFINED_SHUFFLE : UNINITIALISED,
                 .pc = poison->pc,
                 .other_pc = pc,
                 .thread = first_of(b, w) + __builtin_ctz(bad),
                 .lanes = bad});
  if (!shuffled)
    poison->lanes = 0;
}

/* An instruction uses several operands. */
static void use_all(Launch *l, Block *b, Warp *w, int32_t pc, const int32_t *registers, int count,
                    uint32_t mask) {
  for (int k = 0; w->poisoned && k < count; k++)
    use(l, b, w, pc, registers[k], mask);
}

/* Before an instruction runs: what its operands' poison means for it. */
static void check_poison(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i,
                         uint32_t mask) {
  if (i->kind == SHUFFLE || i->kind == WARP)
    return; /* when the lanes have met */
  int computes = i->kind == ALU;
  const int32_t operands[4] = {i->a, i->b, i->c, computes ? i->site : NONE};
  uint32_t passed[4] = {0}, bad = 0;
  int32_t cause = NONE;
  for (int k = 0; k < 4; k++) {
    if (!(poisoned(w, operands[k]) & mask))
      continue;
    const Poison *own = poison_of(w, operands[k]);
    if ((i->copies == COPIES && !k) || (computes && l->code[own->pc].kind != WGMMA)) {
      passed[k] = own->lanes & mask;
      cause = own->pc > cause ? own->pc : cause;
    } else {
      use(l, b, w, pc, operands[k], mask);
    }
  }
  bad = passed[0] | passed[1] | passed[2] | passed[3];
  if (bad && (i->copies == CONJUNCTION || i->copies == DISJUNCTION)) {
    /* An operand that is defined may decide alone. */
    uint32_t flip = i->copies == CONJUNCTION ? FULL : 0;
    uint32_t one = *AT(uint32_t, i->a) ^ flip, other = *AT(uint32_t, i->b) ^ flip;
    bad &= ~((one & ~passed[0]) | (other & ~passed[1]));
  } else if (bad && i->copies == SELECTION) {
    uint32_t chosen = *AT(uint32_t, i->c);
    bad = (chosen & passed[0]) | (~chosen & passed[1]) | passed[2];
  }
  if (i->kind == ACCESS) {
    const Site *s = &l->sites[i->site];
    /* which it leaves unwritten, unless a wgmma is still writing the value */
    int own = s->op == STORE && (s->space == SHARED || s->space == LOCAL);
    for (int k = 0; k < 4 && s->op != LOAD; k++)
      if (poisoned(w, s->values[k]) &&
          (!own || l->code[poison_of(w, s->values[k])->pc].kind == WGMMA))
        use(l, b, w, pc, s->values[k], mask);
    for (int k = 0; k < s->count && s->op != STORE; k++)
      set_poison(w, s->op == LOAD ? s->values[k] : s->results[k], mask, 0, NONE);
  }
  set_poison(w, i->d, mask, bad, cause);
}

#endif
