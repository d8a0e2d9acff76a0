/* Runs warps and blocks: see core.h. */
#include "calls.h"
#include "turns.h"

/* Running. */

/* Of active lanes, each the expression of lane k. Integers are computed for all lanes, since the
 * compiler makes vectors of that. Floats aren't: what the other lanes hold may be subnormal, and a
 * CPU takes long for that. */
#define IS_FLOAT(type) _Generic((type)0, float: 1, double: 1, default: 0)
#define EACH(type, expression)                                                  \
  do {                                                                          \
    type *d = AT(type, i->d);                                                   \
    if (mask == FULL) {                                                         \
      _Pragma("GCC ivdep") for (int k = 0; k < LANES; k++) d[k] = (expression); \
    } else if (IS_FLOAT(type)) {                                                \
      FOR_LANES(k, mask)                                                        \
        d[k] = (expression);                                                    \
    } else {                                                                    \
      _Pragma("GCC ivdep") for (int k = 0; k < LANES; k++) {                    \
        type value = (expression);                                              \
        d[k] = mask >> k & 1 ? value : d[k];                                    \
      }                                                                         \
    }                                                                           \
  } while (0)
#define SOME(type, expression)      \
  do {                              \
    type *d = AT(type, i->d);       \
    for (int k = 0; k < LANES; k++) \
      if (mask >> k & 1)            \
        d[k] = (expression);        \
  } while (0)
#define TEST(expression)                                                 \
  do {                                                                   \
    uint32_t bits = 0;                                                   \
    for (int k = 0; k < LANES; k++)                                      \
      bits |= (uint32_t)((expression) != 0) << k;                        \
    *AT(uint32_t, i->d) = (*AT(uint32_t, i->d) & ~mask) | (bits & mask); \
  } while (0)

/* An instruction that computes values: the cases are made of ops.TABLE. */
static inline void alu(Warp *w, const Instruction *i, uint32_t mask) {
  switch (i->op) {
#include "code.inc"
  default:
    __builtin_unreachable();
  }
}

/* An instruction that is `op` steps, which are records after the program's. */
static void series(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  for (int n = 0; n < i->op; n++) {
    const Instruction *step = &l->code[i->target + n];
    if (w->poisoned)
      check_poison(l, b, w, pc, step, mask);
    if (step->kind == ALU) {
      alu(w, step, mask);
      continue;
    }
    l->ticks += 1000; /* a clock: the emulator has no time */
    FOR_LANES(k, mask)
      AT(uint64_t, step->d)[k] = l->ticks >> step->op;
  }
}

/* trap and brkpt, and a failed assertion, with the address of its text. */
static int trap(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  report_lanes(l, b, w, TRAPPED, pc, mask,
               i->a == NONE ? 0 : AT(int64_t, i->a)[__builtin_ctz(mask)]);
  l->status = ABORTED;
  return STOP;
}

/* vprintf: Python prints. a, b: the addresses of the format and of the arguments. */
static void print(Launch *l, Block *b, Warp *w, const Instruction *i, uint32_t mask) {
  FOR_LANES(k, mask) {
    const uint8_t *local = local_of(l, b, first_of(b, w) + k).data;
    uint32_t *count = i->d == NONE ? NULL : &AT(uint32_t, i->d)[k];
    l->prints[l->prints_count++] =
        (Print){AT(uint64_t, i->a)[k], AT(uint64_t, i->b)[k], local, count};
  }
  l->status = PRINTING;
}

/* rounds of the same lanes after which a loop most likely waits for others of the warp */
enum { PATIENCE = 128 };

/* Lanes go round a loop. site: it may wait for other threads. Whether the warp's turn ends. */
static int spins(Warp *w, const Instruction *i, uint32_t mask, int late) {
  uint32_t failed = mask & w->refused;
  int may = i->site > 0 || failed;
  w->refused &= ~mask;
  w->vain |= failed;
  w->rounds = mask == w->round_lanes ? w->rounds + 1 : 0;
  w->round_lanes = mask;
  int waits = w->rounds >= (i->target == w->waited ? 1 : PATIENCE);
  if (may && (late || waits || next_path(w) < 0))
    w->spinning |= mask;
  if (may && waits)
    w->waited = i->target;
  return late && !may;
}

/* Whether lanes that spin are at an instruction. */
static inline int joins_spinning(const Warp *w, int32_t pc) {
  for (int k = 0; w->spinning && k < w->paths_count; k++)
    if (w->paths[k].pc == pc)
      return 1;
  return 0;
}

/* What an instruction has chosen for these lanes: see Launch.choices. */
static uint8_t chosen(const Warp *w, const Instruction *i, uint32_t mask) {
  int limit = i->copies <= LONG_LIMIT, wide = i->copies == LONG_LIMIT || i->copies == LONG_SHIFT;
  uint32_t first = 0, other;
  if (i->copies <= DISJUNCTION) {
    first = *AT(uint32_t, i->a) & ~*AT(uint32_t, i->b);
    other = *AT(uint32_t, i->b) & ~*AT(uint32_t, i->a);
  } else {
    if (i->copies == SELECTION)
      first = *AT(uint32_t, i->c);
    else
      FOR_LANES(k, mask) {
        uint64_t value = wide ? AT(uint64_t, i->d)[k] : AT(uint32_t, i->d)[k];
        uint64_t operand = !limit ? 0 : wide ? AT(uint64_t, i->a)[k] : AT(uint32_t, i->a)[k];
        first |= (uint32_t)(value != operand) << k;
      }
    other = ~first;
  }
  return (uint8_t)(((first & mask) != 0) | ((other & mask) != 0) << 1);
}

/* A turn of a warp: until its lanes exit, wait or spin, or, from `soft` instructions on, go round a
 * loop; no more than `left` instructions. A handler runs for the lanes whose guard holds, if there
 * are any. It says how they go on: with the next instruction; not now, then it has put them
 * somewhere; or the launch ends.
 *
 * Lanes spin that go round a loop which may wait for other threads: the others of the warp run
 * before they go on, and, if there are none, the other warps. */
static int64_t run_warp(Launch *l, Block *b, Warp *w, int64_t soft, int64_t left) {
  int64_t end = left - soft;
  w->entry = left;
  w->spinning = w->vain = 0;
  while (left > 0) {
    Path path = w->held_count ? met(l, b, w) : (Path){NONE, 0};
    /* ready: these lanes have met */
    int ready = path.mask != 0, n = ready ? w->paths_count : next_path(w);
    if (n < 0)
      break;
    if (!ready) {
      path = w->paths[n];
      w->paths_count--;
      for (int k = n; k < w->paths_count; k++)
        w->paths[k] = w->paths[k + 1];
    }
    int32_t pc = path.pc, next = n ? w->paths[n - 1].pc : INT32_MAX;
    uint32_t lanes = path.mask;
    while (lanes) {
      const Instruction *i = &l->code[pc];
      if (i->block != NONE) {
        if (!ready && (pc >= next || left <= 0 || joins_spinning(w, pc))) {
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
        if (w->poisoned && !ready)
          use(l, b, w, pc, i->guard, lanes);
        mask &= i->negated ? ~guard : guard;
        l->choices[pc] |= (mask != 0) | (mask != lanes) << 1;
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
      if (w->poisoned)
        check_poison(l, b, w, pc, i, mask);
      int then = NEXT;
      w->left = left;
      switch (i->kind) {
      case ALU:
        alu(w, i, mask);
        if (i->copies > COPIES && l->choices[pc] < 3)
          l->choices[pc] |= chosen(w, i, mask);
        break;
      case SERIES:
        series(l, b, w, pc, i, mask);
        break;
      case ACCESS:
        then = access(l, b, w, pc, i, mask);
        break;
      case BRANCH: {
        if (mask == lanes && (i->target > pc || !(left < end || i->site > 0 || w->refused))) {
          pc = i->target;
          continue;
        }
        push(w, pc + 1, lanes & ~mask);
        int over = i->target <= pc && spins(w, i, mask, left < end);
        push(w, i->target, mask);
        if (over)
          return left;
        lanes = 0;
        continue;
      }
      case EXIT:
        w->live &= ~mask;
        b->exited += __builtin_popcount(mask);
        leave(l, b, w, pc);
        lanes &= ~mask;
        if (!w->held_count)
          break;
        push(w, pc + 1, lanes); /* others may have waited for those that exit */
        lanes = 0;
        continue;
      case BARRIER:
        then = barrier(l, b, w, pc, i, mask);
        break;
      case SHUFFLE:
      case WARP:
        then = together(l, b, w, &(Path){pc, mask}, 1);
        break;
      case TENSOR:
        then = tensor(l, b, w, pc, i, mask);
        break;
      case WGMMA:
        then = wgmma(l, b, w, pc, i, mask);
        break;
      case TRAP:
        then = trap(l, b, w, pc, i, mask);
        break;
      case PRINT:
        print(l, b, w, i, mask);
        push(w, pc + 1, lanes);
        return left;
      case SET_REGISTERS:
        w->registers = (int32_t)AT(uint32_t, i->a)[__builtin_ctz(mask)];
        w->registers_pc = pc;
        break;
      case ASYNC:
        then = asynchronous(l, b, w, pc, i, mask);
        break;
      case CALL:
        then = call(l, b, w, pc, i, mask);
        break;
      case RETURN:
        then = give_back(l, w, mask);
        break;
      case FENCE:
        then = fence(l, b, w, i->op, mask);
        break;
      case REFUSED:
        l->stuck_pc = pc;
        l->status = UNSUPPORTED;
        return left;
      default:
        __builtin_unreachable();
      }
      if (then == AGAIN) { /* after the other warps */
        if (i->block != NONE) {
          l->executed[2 * i->block]--;
          l->executed[2 * i->block + 1] -= __builtin_popcount(lanes);
        }
        push(w, pc, lanes);
        w->spinning |= lanes;
        break;
      }
      pc++;
      if (then == PARKED) {
        push(w, pc, lanes & ~mask);
        break;
      }
      if (then == STOP)
        return left;
    }
  }
  return left;
}
