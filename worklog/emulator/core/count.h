/* What accesses cost. Included by core.c alone. */
#ifndef WORKLOG_COUNT_H
#define WORKLOG_COUNT_H

#include "state.h"

enum { REQUESTS, SECTORS, WAVEFRONTS, CONFLICTS, BYTES, LINES }; /* the costs of a site */
/* Of the addresses of a whole warp that moves registers unchanged: anyhow, all the same, or one
 * behind the other. */
enum form { UNLIKE, APART, SAME, ROW };

/* Distinct values among n, which are sorted then. They are few, and most are sorted already. */
static int distinct(uint64_t *x, int n) {
  int count = n > 0;
  for (int k = 1; k < n; k++) {
    uint64_t value = x[k];
    int place = k;
    for (; place > 0 && x[place - 1] > value; place--)
      x[place] = x[place - 1];
    x[place] = value;
  }
  for (int k = 1; k < n; k++)
    count += x[k] != x[k - 1];
  return count;
}

/* The costs of an access to global memory. */
static void count_global(const uint64_t *address, uint32_t mask, int width, int64_t *costs) {
  uint64_t sector[LANES], line[LANES];
  int n = 0;
  FOR_LANES(k, mask) {
    sector[n] = address[k] / 32;
    line[n++] = address[k] / 128;
  }
  costs[REQUESTS] = 1;
  costs[SECTORS] = distinct(sector, n);
  costs[BYTES] = (int64_t)n * width;
  costs[LINES] = distinct(line, n);
}

/* A warp's 64-bit access takes two phases of 16 lanes, a 128-bit one four of 8, each of up to 128
 * bytes. There are half as many if lanes n and n ^ 1 have equal addresses in each such pair, or
 * lanes n and n ^ 2. A phase costs as many wavefronts as the busiest bank has distinct words; all
 * but the first are conflicts. Agrees with Nsight Compute on an H200. */
static void count_shared(const uint64_t *address, uint32_t mask, int width, int64_t *costs) {
  int words = width > 4 ? width / 4 : 1, phases = words, unpaired[3] = {0};
  for (int k = 0; k < LANES; k++)
    for (int distance = 1; distance <= 2; distance++) {
      int both = mask >> k & mask >> (k ^ distance) & 1;
      unpaired[distance] |= both && address[k] != address[k ^ distance];
    }
  if (width > 4 && !(unpaired[1] && unpaired[2]))
    phases /= 2;
  costs[REQUESTS] = 1;
  for (int first = 0, lanes = LANES / phases; first < LANES; first += lanes) {
    uint64_t word[LANES * 4];
    int n = 0, load[32] = {0}, most = 0;
    for (int k = first; k < first + lanes; k++)
      for (int j = 0; j < words && mask >> k & 1; j++)
        word[n++] = address[k] / 4 + (uint64_t)j;
    distinct(word, n);
    for (int k = 0; k < n; k++)
      if (!k || word[k] != word[k - 1])
        most += ++load[word[k] % 32] > most;
    costs[WAVEFRONTS] += most;
    costs[CONFLICTS] += most ? most - 1 : 0;
  }
}

/* How addresses lie: often as those of the last access. */
static Pattern *pattern_of(Site *s, const uint64_t *address, uint32_t mask) {
  Pattern *p = &s->last;
  uint64_t first = address[__builtin_ctz(mask)], differs = 0;
  int64_t low = 0, high = 0;
  int row = 1;
  for (int k = 0; k < LANES; k++)
    differs |= (address[k] - first) ^ p->relative[k];
  if (!differs && p->mask == mask)
    return p;
  *p = (Pattern){.mask = mask};
  for (int k = 0; k < LANES; k++) {
    int64_t x = (int64_t)(p->relative[k] = address[k] - first);
    low = x < low ? x : low;
    high = x > high ? x : high;
    p->bits |= p->relative[k];
    row &= p->relative[k] == (uint64_t)(k * s->size);
  }
  p->low = (uint64_t)low;
  p->span = (uint64_t)high - (uint64_t)low;
  if (mask == FULL && s->size == s->width && s->size >= 4)
    p->form = !p->bits ? SAME : row && s->count == 1 ? ROW : APART;
  for (int j = 0; j < LANES; j++) { /* two of each address */
    int earlier = 0;
    for (int n = 0; n < j && earlier < 2; n++)
      earlier += address[n] == address[j] && mask >> n & 1;
    if (earlier < 2 && mask >> j & 1)
      p->readers |= 1u << j;
  }
  return p;
}

/* An access to shared memory, or the wide one that ptxas makes it part of, where that is aligned.
 */
static void count_joined(const Site *s, const uint64_t *address, uint32_t mask, int64_t *costs) {
  costs[BYTES] = (int64_t)__builtin_popcount(mask) * s->size * s->count;
  for (int g = 0; g < s->groups_count; g++) {
    const Group *group = &s->groups[g];
    uint64_t crooked = 0, moved[LANES];
    for (int k = 0; k < LANES; k++) {
      moved[k] = address[k] + (uint64_t)(group->offset - s->offset);
      if (mask >> k & 1)
        crooked |= moved[k] % (uint64_t)group->width;
    }
    if (crooked)
      continue;
    if (group->leads)
      count_shared(moved, mask, group->width, costs);
    return;
  }
  count_shared(address, mask, s->size * s->count, costs);
}

/* Count an access of lanes at a site. */
static void count(Site *s, Pattern *p, const uint64_t *address, uint32_t mask) {
  uint64_t start = address[__builtin_ctz(mask)] & (s->space == SHARED ? 15 : 127);
  /* all lanes enter a sector, a line, at once */
  if (s->space != SHARED && !(p->bits & 31))
    start &= p->bits & 127 ? 96 : 0;
  if (!p->counted || p->start != start) {
    p->counted = 1;
    p->start = start;
    memset(p->costs, 0, sizeof p->costs);
    if (s->space == SHARED)
      count_joined(s, address, mask, p->costs);
    else
      count_global(address, mask, s->size * s->count, p->costs);
  }
  for (int k = 0; k < 6; k++)
    s->costs[k] += p->costs[k];
}

/* Count an access to local memory. A GPU lays the threads' words side by side: lanes that access
 * the same place of an array access neighbouring words (CUDA C++ Programming Guide, "Local
 * Memory"). */
static void count_local(Site *s, const uint64_t *address, uint32_t mask) {
  const uint64_t bytes = (uint64_t)(s->size * s->count);
  uint64_t woven[LANES] = {0};
  FOR_LANES(k, mask)
    woven[k] = (address[k] / bytes * LANES + (uint64_t)k) * bytes;
  int64_t costs[6] = {0};
  count_global(woven, mask, s->size * s->count, costs);
  for (int k = 0; k < 6; k++)
    s->costs[k] += costs[k];
}

/* Add a step to the trace. s: the site whose last costs are its own, or NULL. */
static void note(Launch *l, const Block *b, const Warp *w, const Site *s, int32_t pc, int32_t space,
                 uint32_t mask, const uint64_t *address) {
  if (l->traced_count == l->most_steps)
    return;
  Step step = {
      .pc = pc, .warp = number_of_warp(b, w) % own_warps(l, b), .space = space, .mask = mask};
  step.block = block_of(l, b, first_of(b, w));
  if (s && l->counting)
    memcpy(step.costs, s->last.costs, sizeof step.costs);
  if (address)
    memcpy(step.address, address, sizeof step.address);
  FOR_LANES(k, space == SHARED && address ? mask : 0)
    memcpy(step.words[k], b->shared.data + (address[k] & ~(uint64_t)15), sizeof step.words[k]);
  for (int k = 0; k < LANES && l->blocks > 1 && space == SHARED; k++)
    step.address[k] %= (uint64_t)l->shared_stride;
  append(l, &l->chunks, &l->traced, &l->traced_count, &step, sizeof step);
}

/* Of one access of a warp: see core.h. */
void costs_of(const uint64_t *address, uint32_t mask, int32_t width, int32_t shared,
              int64_t *costs) {
  if (shared)
    count_shared(address, mask, width, costs);
  else
    count_global(address, mask, width, costs);
}

#endif
