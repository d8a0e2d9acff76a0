/* What the core uses of C's library, in WebAssembly. Zig has a whole library for it, in 600 files
 * that it compiles first; these few functions take none of that. Zig's runtime has the others. */
#include <stddef.h>
#include <stdint.h>

/* Memory. A freed block is used again for a block of its size. Sizes are rounded up, to one of four
 * between a power of two and the next, so that there are few. Every block is aligned as the core's
 * registers are, and behind a header as large. */

enum { ALIGNMENT = 128, PAGE = 1 << 16 };

typedef struct Block Block;
struct Block {
  uint32_t size; /* with this header */
  Block *next;   /* of the freed ones of this size */
  _Alignas(ALIGNMENT) uint8_t data[];
};

extern uint8_t __heap_base; /* of the linker: memory is free from here on */
static Block *freed[4 * 32];
static uintptr_t heap_end;

/* Where the freed blocks of a size are kept. */
static Block **freed_of(uint32_t size) {
  int exponent = 31 - __builtin_clz(size);
  return &freed[4 * exponent + (size >> (exponent - 2) & 3)];
}

/* New memory, or NULL. */
static void *at_end(uint32_t size) {
  if (!heap_end)
    heap_end = ((uintptr_t)&__heap_base + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  uint64_t end = (uint64_t)heap_end + size;
  uint64_t pages = (end + PAGE - 1) / PAGE, now = __builtin_wasm_memory_size(0);
  if (pages > now) {
    if (pages > UINT32_MAX / PAGE)
      return NULL;
    if (__builtin_wasm_memory_grow(0, (size_t)(pages - now)) == SIZE_MAX)
      return NULL;
  }
  void *start = (void *)heap_end;
  heap_end = (uintptr_t)end;
  return start;
}

/* A block's data, or NULL. */
static void *allocated(size_t data_size) {
  if (data_size > INT32_MAX)
    return NULL;
  uint32_t least = (uint32_t)data_size + sizeof(Block);
  uint32_t step = 1u << (29 - __builtin_clz(least));
  if (step < ALIGNMENT)
    step = ALIGNMENT;
  uint32_t size = (least + step - 1) / step * step;
  Block **same = freed_of(size);
  Block *block = *same;
  if (block)
    *same = block->next;
  else
    block = at_end(size);
  if (!block)
    return NULL;
  block->size = size;
  return block->data;
}

void *malloc(size_t size) { return allocated(size); }

void *aligned_alloc(size_t alignment, size_t size) {
  return alignment <= ALIGNMENT ? allocated(size) : NULL;
}

void *calloc(size_t count, size_t size) {
  size_t all;
  if (__builtin_mul_overflow(count, size, &all))
    return NULL;
  void *data = allocated(all);
  if (data)
    __builtin_memset(data, 0, all);
  return data;
}

void free(void *data) {
  if (!data)
    return;
  Block *block = (Block *)((uint8_t *)data - offsetof(Block, data));
  Block **same = freed_of(block->size);
  block->next = *same;
  *same = block;
}

/* Numbers. */

double exp(double);

/* The next number after x, towards y. */
float nextafterf(float x, float y) {
  if (x != x || y != y)
    return x + y;
  if (x == y)
    return y;
  if (x == 0)
    return __builtin_copysignf(0x1p-149f, y);
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  bits += (x < y) == (x > 0) ? 1u : -1u;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

/* The hyperbolic tangent. 1 - 2 / (exp(2 x) + 1) cancels near 0: there it is Lambert's continued
 * fraction. */
double tanh(double x) {
  double size = __builtin_fabs(x);
  if (size > 22)
    return __builtin_copysign(1, x);
  if (size >= 0.5)
    return __builtin_copysign(1 - 2 / (exp(2 * size) + 1), x);
  double square = x * x, tail = 19;
  for (int odd = 17; odd > 0; odd -= 2)
    tail = odd + square / tail;
  return x / tail;
}
