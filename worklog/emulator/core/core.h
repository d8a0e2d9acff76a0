/* The emulator's core: decoded instructions, one warp at a time. Python (worklog.emulator.core)
 * fills these records; it reads their layouts, and the numbers of the enumerations, from this file.
 *
 * A register is 32 lanes of its width; a predicate is a mask of 32 bits. An operand is a byte
 * offset in the warp's register file, which begins with constants, so that literals, parameters and
 * special registers are operands too. */
#ifndef WORKLOG_CORE_H
#define WORKLOG_CORE_H

#include <stdint.h>

#define LANES 32
#define FULL 0xFFFFFFFFu
#define NONE (-1)

enum kind {
  ALU,
  ACCESS,
  BRANCH,
  EXIT,
  BARRIER,
  SHUFFLE,
  WARP,
  TENSOR,
  TRAP,
  PRINT,
  SET_REGISTERS,
  FENCE,
  REFUSED,
  SERIES,
  WGMMA,
  ASYNC,
  CLOCK,
  CALL,
  RETURN
};
enum barrier {
  SYNC,
  ARRIVE,
  POPULATION,
  ALL_TRUE,
  ANY_TRUE,
  CLUSTER_ARRIVE,
  CLUSTER_RELAXED,
  CLUSTER_WAIT
};
enum space { GLOBAL, SHARED, LOCAL, CONSTANT, GENERIC };
enum access { LOAD, STORE, ATOMIC };
enum shuffle { UP, DOWN, BUTTERFLY, INDEX };
enum warp {
  SYNCHRONISE,
  ANY,
  ALL,
  UNIFORM,
  BALLOT,
  ACTIVE,
  ELECT,
  MATCH_ANY,
  MATCH_ALL,
  WIDE_MATCH_ANY,
  WIDE_MATCH_ALL,
  REDUCE /* by the operation whose number is added */
};
enum async {
  COPY,
  COPY_COMMIT,
  COPY_WAIT,
  BULK_LOAD,
  BULK_STORE,
  BULK_COMMIT,
  BULK_WAIT,
  TRACK,
  INITIALISE,
  INVALIDATE,
  EXPECT,
  ARRIVE_AT,
  WAIT_FOR,
  FENCE_PROXY,
  PENDING_COUNT
};
enum passes {
  COPIES = 1,
  CONJUNCTION,
  DISJUNCTION,
  SELECTION,
  LIMIT,
  LONG_LIMIT,
  SHIFT,
  LONG_SHIFT
};
/* Of calls in calls, and of bytes of a thread's registers in their frames: a GPU's stack has 1 KB
 * by default. */
enum stack { DEEPEST = 1000, STACK = 32768 };
enum { ALIGNED = -1 };
/* The address of the function at the first instruction. */
#define FIRST_FUNCTION ((int64_t)1 << 50)
enum event_kind {
  OUT_OF_BOUNDS,
  MISALIGNED,
  READ_ONLY,
  OUTSIDE_ARRAY,
  UNINITIALISED,
  SHARED_RACE,
  GLOBAL_RACE,
  STALE_READ,
  AFTER_EXIT,
  DIVERGENT_BARRIER,
  NOT_A_MEMBER,
  OTHER_MASK,
  NOT_THERE,
  EXITED,
  UNDEFINED_SHUFFLE,
  PART_OF_WARP,
  CROOKED_MATRIX,
  CLUSTER_AGAIN,
  CLUSTER_UNARRIVED,
  BLOCK_LEFT,
  LEFT_EARLY,
  NOT_STARTED,
  BARRIER_WRONG,
  BARRIER_AGAIN,
  BARRIER_MORE,
  BARRIER_MIXED,
  TRAPPED,
  REGISTERS_WANTED,
  MATRIX_OUTSIDE,
  MATRIX_UNWRITTEN,
  PART_OF_GROUP,
  NO_GROUP_FENCE,
  DESCRIPTORS,
  BASE_OFFSET,
  MISSING_PROXY_FENCE,
  STILL_READ,
  IN_FLIGHT,
  READ_EARLY,
  OVERWRITTEN_EARLY,
  REFILLED,
  STORE_UNWAITED,
  LOAD_UNWAITED,
  UNFENCED_INIT,
  NOT_WAITED,
  ARRIVALS_BEYOND,
  ARRIVALS_BEYOND_BYTES,
  COMPLETED_ANYWAY,
  BYTES_UNEXPECTED,
  BYTES_TOO_MANY,
  BYTES_MISSING,
  BYTES_SURPLUS,
  MBARRIER_MISALIGNED,
  MBARRIER_OUTSIDE,
  NO_MBARRIER,
  MBARRIER_UNSEEN,
  MBARRIER_AGAIN,
  MBARRIER_COUNT,
  MBARRIER_OVERWRITTEN,
  WRONG_STATE,
  PHASE_LACKS,
  BARRIER_LACKS,
  BULK_MISALIGNED,
  BOX_MISALIGNED,
  BULK_OUTSIDE_SHARED,
  BULK_OUTSIDE,
  BULK_READ_ONLY,
  BOX_BEFORE,
  NO_TENSOR_MAP,
  CALLS_TOO_DEEP,
  NO_FUNCTION
};
enum status {
  DONE,
  SLICE_OVER,
  BUDGET_OVER,
  DEADLOCK,
  NO_MEMORY,
  ENDLESS,
  ABORTED,
  UNSUPPORTED,
  PRINTING,
  FRAMES_TOO_LARGE
};

typedef struct {
  int32_t kind, op;
  int32_t guard, negated; /* a predicate's offset, or NONE */
  int32_t d, a, b, c;     /* offsets of the operands */
  /* of an access; of a branch, whether its loop may wait; else the offset of an operand */
  int32_t site;
  int32_t target; /* of a branch, of a series' steps, or in the launch's lists */
  int32_t block;  /* the basic block that starts here, or NONE */
  /* how it passes on operands that must not be used, or chooses: enum passes, or 0 */
  int32_t copies;
  /* where lanes of a warp meet: ALIGNED, or a number of the opcode; else 0 */
  int32_t meets;
} Instruction;

typedef struct { /* a wide access that ptxas may make the access part of */
  int32_t leads, width;
  int64_t offset;
} Group;

/* How the last addresses of a site lie, relative to the first lane's, and what such an access costs
 */
typedef struct {
  /* low: the least one; span: from it to the highest; bits: of any */
  uint64_t relative[LANES], low, span, bits;
  /* the bits of the first address that the costs depend on */
  uint64_t start;
  /* readers: lanes that stand for all that read the same bytes */
  uint32_t mask, readers;
  /* form: see count.h; counted: whether the costs are known */
  int32_t form, counted;
  int64_t costs[6];
} Pattern;

typedef struct {
  int32_t line, op, space, size, count; /* line: of the source; count elements of size bytes */
  int32_t values[4];                    /* registers loaded or stored */
  int32_t width, is_signed;             /* of such a register, in bytes */
  int32_t wide;                         /* the address register has 64 bits */
  int32_t groups_count;
  int32_t read_only; /* a load of memory that no thread may write during the launch */
  int32_t strong;    /* an atomic or ordered access: no race with another one */
  /* the operation, of ops.py; values: of its operands; results: the old values' registers */
  int32_t atomic;
  int32_t order; /* how it takes part in a hand-over, see vector_clock.h */
  int32_t results[4];
  int64_t offset;
  /* of the shared array that the address comes from; size NONE: unknown. Of a generic access,
   * array_start is the number of the first of its sites, one per memory */
  int64_t array_start, array_size;
  Group groups[4];
  int64_t costs[6]; /* requests, sectors, wavefronts, conflicts, bytes, lines */
  Pattern last;
  int64_t buffer; /* the last one */
} Site;

/* An access of a cell: its thread (of the launch) plus 1, its time and its instruction */
typedef struct {
  uint32_t thread, time;
  int32_t pc;
} Stamp;

typedef struct {
  Stamp write, read, other; /* other: the last read by another thread than `read` */
  uint32_t agreed;          /* several threads wrote this value */
} Cell;

typedef struct {
  uint64_t base, size;
  uint8_t *data;    /* NULL: unknown values */
  Cell *cells;      /* NULL: not checked */
  uint8_t *written; /* by cell, whether anything wrote it; NULL: not checked */
  uint8_t *read;    /* by byte, whether a load read it; NULL: not recorded */
  int32_t writable, unused;
} Buffer;

typedef struct {
  int32_t kind, pc, other_pc, thread, other_thread, warps_differ;
  /* space: of an access by a generic address; CONSTANT: of the global side of a cp.async */
  uint32_t lanes, space;
  int64_t block, other_block, value, count, numbers[8];
} Event;

/* What a warp did: an access, lines of shared memory that a multiplication reads, a bulk copy, or a
 * barrier. */
typedef struct {
  int32_t pc, warp, space;
  uint32_t mask;
  int64_t block, costs[6]; /* costs: as a site's */
  /* of a bulk copy: in shared and in global memory, strips, bytes of one, to the next one */
  uint64_t address[LANES];
  /* of shared memory, afterwards: the aligned 16 bytes that a lane's access is in */
  uint32_t words[LANES][4];
} Step;

/* A vprintf of one thread, with its local memory; where the number of arguments goes, or NULL */
typedef struct {
  uint64_t format, arguments;
  const uint8_t *local;
  uint32_t *count;
} Print;

/* Of a tensor, the innermost dimension first. counts: elements of a box; strides: bytes */
typedef struct {
  int32_t dimensions, item, swizzle, nan;
  int64_t shape[5], strides[5], counts[5], steps[5];
} Layout;

typedef struct Block Block;
typedef struct Between Between;
typedef struct Chunk Chunk;

typedef struct {
  const Instruction *code;
  Site *sites;
  Buffer *buffers;
  /* of a register file: constants, and what registers hold before they are written */
  const uint8_t *image;
  const int64_t *numbers; /* of the blocks to run: those of a cluster one after the other */
  int64_t *executed;      /* by basic block: warps and threads */
  /* by instruction: 1 if a guard or a selection held for a thread, 2 if it did not; of two
   * predicates that are joined, if the first held alone, and the other; of a minimum, maximum or
   * mask, if the result was not the first operand, and if it was; of a shift to the right, if it
   * was not 0, and if it was */
  uint8_t *choices;
  Event *events;
  const int32_t *specials; /* pairs: number of a special register, offset */
  const int32_t *lists;    /* what instructions have beyond their records, from their targets on */
  int64_t clusters_count, next, code_count, budget, slice, steps;
  uint64_t ticks;              /* of the clock */
  int64_t frames, most_frames; /* bytes of the frames of all calls */
  int32_t file_size, special_count, events_count;
  int32_t grid[3], block[3];
  /* blocks: of a cluster, whose shared memories are one, `shared_stride` apart; shared_size: of
   * them all */
  int32_t blocks, cluster[3], own_size, shared_stride;
  int32_t shared_size, local_size, buffers_count, grain, counting, checking, sites_count;
  int32_t stuck_pc, stuck_thread, status, stuck_count;
  /* scratch: 6 registers of no instruction's own; whether there are fences */
  int32_t scratch, fences;
  int64_t stuck_block;
  Print prints[LANES]; /* that Python does before the launch goes on */
  Step *traced;        /* no more than most_steps */
  int32_t prints_count, traced_count, most_steps;
  int64_t *half;    /* executed, when a warp had used half of its budget; basic_blocks of them */
  Block **resident; /* blocks that run, and may wait for each other */
  Between *between; /* what blocks have handed over */
  Chunk *chunks;    /* memory of the launch */
  /* of warps that have exited, for the next ones: each begins with the address of another one */
  uint8_t *registers;
  Chunk *spare[512]; /* that of blocks that have ended, for the next ones: lists by size */
  /* kept of what was handed over, since it was forgotten; how often that was */
  int64_t times, forgotten;
  /* of global memory, which other blocks see, and ends of phases; before this round */
  uint64_t changes, changes_before;
  int64_t quiet, vain; /* rounds since the last change; and those since in which all wait in vain */
  /* of the order in which warps and blocks take turns; 0: in the order of their numbers */
  uint64_t seed;
  int32_t together, resident_count, turn, ended, basic_blocks, halved, stuck_number;
  int32_t reserved; /* bytes at the end of shared memory that hold zeros when a block starts */
  int32_t waits;    /* whether threads may wait for others in loops */
  /* blocks that start at once, with a seed, and that share a multiprocessor then */
  int32_t meeting, neighbours;
  int32_t ulps;          /* by which approximations are above the nearest float32: -1, 0 or 1 */
  const Layout *layouts; /* of tensor maps, by their numbers */
  /* whether mbarriers, bulk copies or the like order accesses */
  int32_t layouts_count, orders_more;
  uint32_t space; /* of the events of the access that is under way: see Event */
} Launch;

int launch_run(Launch *launch);
void launch_free(Launch *launch);
/* Costs of one access of a warp, as a site's; lanes outside of the mask have a valid lane's
 * address. */
void costs_of(const uint64_t *address, uint32_t mask, int32_t width, int32_t shared,
              int64_t *costs);

#endif
