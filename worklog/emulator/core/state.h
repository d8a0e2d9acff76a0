/* The state of the blocks that run. */
#ifndef WORKLOG_STATE_H
#define WORKLOG_STATE_H

#include "core.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NEXT, PARKED, STOP }; /* what a handler returns: see run_warp */

#define AT(type, offset) ((type *)(w->file + (offset)))

/* Of lanes of one warp that are at the same instruction. */
typedef struct {
  int32_t pc;
  uint32_t mask;
} Path;

typedef struct {
  uint8_t *file;
  uint32_t live, waiting; /* lanes that have not exited; those at a barrier */
  int64_t steps, entry, left; /* instructions before this turn; what was left of the slice then, and is at an access */
  uint32_t time;          /* of the block's last barrier, and one more for each __syncwarp() since */
  int64_t *first;         /* by site: the barriers and steps of the block at its first access since the last barrier */
  int32_t paths_count, arrivals_count, held_count;
  Path paths[LANES], arrivals[LANES]; /* paths: by falling pc */
  Path held[LANES];                   /* lanes that wait for others of the warp, by rising pc */
  uint32_t lived;                     /* lanes that lived when the first of those began to wait */
  int32_t forced;                     /* an instruction whose lanes wait no longer, or NONE */
  int32_t poisoned;                   /* whether any register holds a value that must not be used */
  int32_t *poison_site;               /* by offset of a register / 4: the instruction that gave it */
  uint32_t *poison;                   /* and its lanes */
} Warp;

struct Block {
  int64_t number;
  int32_t warps_count, turn;
  uint32_t base;  /* the number of its first thread in the launch */
  uint32_t time;  /* later than all accesses before the last barrier */
  int32_t exited; /* threads */
  Warp *warps;
  uint8_t *shared, *written, *local, *local_written; /* written: by cell; local_written: by byte */
  Cell *cells;
};

#endif
