// cuBLASLt's functions on the host's memory, with the parameters of cublasLt.h.
//
// The heuristic offers what fake_offer() has set. Its algorithms compute C in column-major order,
// slowly. An algorithm with the id that fake_refuse() has set isn't supported.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { R_32F = 0, COMPUTE_32F = 68 };

typedef struct { int type; uint64_t rows, columns; int64_t ld; } Layout;
typedef struct { int compute, scale; } Operation;
typedef struct { uint64_t workspace; uint32_t alignments[4]; } Preference;
typedef struct { uint64_t data[8]; } Algorithm;
typedef struct {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} Result;

static int offered = 3, refused = -1, open_preferences = 0;
static int handle;
static void *last_stream;

void fake_offer(int count) { offered = count; }
void fake_refuse(int id) { refused = id; }
int fake_open_preferences(void) { return open_preferences; }
void *fake_stream(void) { return last_stream; }

const char *cublasLtGetStatusName(int status) {
  if (status == NOT_SUPPORTED) return "CUBLAS_STATUS_NOT_SUPPORTED";
  return status == INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : "unrecognized status";
}

int cublasLtCreate(void **created) {
  *created = &handle;
  return SUCCESS;
}

int cublasLtMatmulDescCreate(void **created, int compute, int scale) {
  Operation *operation = malloc(sizeof(Operation));
  operation->compute = compute;
  operation->scale = scale;
  *created = operation;
  return SUCCESS;
}

int cublasLtMatrixLayoutCreate(void **created, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  Layout *layout = malloc(sizeof(Layout));
  layout->type = type;
  layout->rows = rows;
  layout->columns = columns;
  layout->ld = ld;
  *created = layout;
  return SUCCESS;
}

int cublasLtMatmulPreferenceCreate(void **created) {
  Preference *preference = calloc(1, sizeof(Preference));
  for (int k = 0; k < 4; k++) preference->alignments[k] = 256;
  open_preferences++;
  *created = preference;
  return SUCCESS;
}

int cublasLtMatmulPreferenceDestroy(void *preference) {
  open_preferences--;
  free(preference);
  return SUCCESS;
}

int cublasLtMatmulPreferenceSetAttribute(Preference *preference, int attribute, const void *value, size_t size) {
  if (attribute == 1 && size == 8) memcpy(&preference->workspace, value, size);
  else if (attribute >= 5 && attribute <= 8 && size == 4) memcpy(&preference->alignments[attribute - 5], value, size);
  else return INVALID_VALUE;
  return SUCCESS;
}

static int is_product(const Operation *operation, const Layout *a, const Layout *b, const Layout *c) {
  return operation->compute == COMPUTE_32F && operation->scale == R_32F && a->type == R_32F && b->type == R_32F &&
         c->type == R_32F && a->columns == b->rows && a->rows == c->rows && b->columns == c->columns;
}

// The last algorithm needs operands that are aligned to 256 bytes. The second result has failed.
int cublasLtMatmulAlgoGetHeuristic(void *library, Operation *operation, Layout *a, Layout *b, Layout *c, Layout *d,
                                   Preference *preference, int count, Result *results, int *returned) {
  if (library != &handle || count < 1 || c != d || !is_product(operation, a, b, c)) return INVALID_VALUE;
  if (offered == 0) return NOT_SUPPORTED;
  *returned = 0;
  for (int k = 0; k < offered + 1 && *returned < count; k++) {
    Result *result = &results[*returned];
    memset(result, 0, sizeof(Result));
    result->algorithm.data[0] = 20 + k;  // the id
    result->algorithm.data[6] = 28;      // 8x5
    result->algorithm.data[1] = k ? 500 + k : 18;  // 128x64, and unknown ones
    result->algorithm.data[2] = 1 + k;
    result->workspace = 1000 * k;
    result->state = k == 1 ? NOT_SUPPORTED : SUCCESS;
    int needs = k == offered ? 256 : 4;
    int fits = result->workspace <= preference->workspace;
    for (int n = 0; n < 4; n++) fits = fits && preference->alignments[n] >= (uint32_t)needs;
    *returned += fits;
  }
  return SUCCESS;
}

int cublasLtMatmulAlgoConfigGetAttribute(const Algorithm *algorithm, int attribute, void *value, size_t size, size_t *written) {
  if (size != 4 || attribute < 0 || attribute > 6) return INVALID_VALUE;
  uint32_t number = (uint32_t)algorithm->data[attribute];
  memcpy(value, &number, size);
  *written = size;
  return SUCCESS;
}

int cublasLtMatmul(void *library, Operation *operation, const float *alpha, const float *A, Layout *a, const float *B,
                   Layout *b, const float *beta, const float *C, Layout *c, float *D, Layout *d,
                   const Algorithm *algorithm, void *workspace, size_t workspace_bytes, void *stream) {
  if (library != &handle || C != D || c != d || !is_product(operation, a, b, c)) return INVALID_VALUE;
  uint64_t needed = 1000 * (algorithm->data[0] - 20);
  if (workspace_bytes < needed || (needed && !workspace)) return INVALID_VALUE;
  if ((int)algorithm->data[0] == refused) return NOT_SUPPORTED;
  last_stream = stream;
  for (uint64_t row = 0; row < c->rows; row++)
    for (uint64_t column = 0; column < c->columns; column++) {
      float sum = 0;
      for (uint64_t k = 0; k < a->columns; k++) sum += A[row + k * a->ld] * B[k + column * b->ld];
      float *out = &D[row + column * d->ld];
      *out = *alpha * sum + (*beta == 0 ? 0 : *beta * *out);
    }
  return SUCCESS;
}
