// Host code as device code, so that it can be run: a launch is a call that records it.
#pragma once

// Calls that only wait, ask or set: a launch is recorded, and fails later if it does.
#define cudaDeviceSynchronize() cudaSuccess
#define cudaStreamSynchronize(stream) cudaSuccess
#define cudaGetLastError() cudaSuccess
#define cudaPeekAtLastError() cudaSuccess
#define cudaFuncSetAttribute(...) cudaSuccess
#define cudaFuncSetCacheConfig(...) cudaSuccess
#define cudaGetErrorString(error) ""

// A program is run without arguments.
// What isn't there can't be read: these fail.
__device__ inline long atol(const char* text) {
  long value = 0;
  for (; *text >= '0' && *text <= '9'; ++text) value = 10 * value + (*text - '0');
  return value;
}
__device__ inline int atoi(const char* text) { return (int)atol(text); }
__device__ inline long strtol(const char* text, char**, int) { return atol(text); }
__device__ inline int strcmp(const char* first, const char* second) {
  while (*first && *first == *second) ++first, ++second;
  return *first - *second;
}

template <typename... Words>
__device__ bool checkCmdLineFlag(Words...) {
  return false;
}
template <typename... Words>
__device__ int getCmdLineArgumentInt(Words...) {
  return 0;
}

// Ends a run: each is a thread.
__device__ inline void exit(int) { asm volatile("exit;"); }
__device__ inline void _exit(int) { asm volatile("exit;"); }
__device__ inline void quick_exit(int) { asm volatile("exit;"); }
__device__ inline void abort() { asm volatile("exit;"); }
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1
#undef assert
#define assert(...) ((__VA_ARGS__) ? (void)0 : exit(1))

// The host's functions for integers.
__device__ inline double ceil(int value) { return value; }
__device__ inline double ceil(unsigned value) { return value; }
__device__ inline double ceil(long value) { return value; }
__device__ inline double ceil(unsigned long value) { return value; }
__device__ inline double floor(int value) { return value; }
__device__ inline double floor(unsigned value) { return value; }
__device__ inline double floor(long value) { return value; }
__device__ inline double floor(unsigned long value) { return value; }

// Of the standard library, what grids are computed with, and what functions that launch return.
namespace std {
using ::abort;
using ::abs;
using ::atoi;
using ::ceil;
using ::exit;
using ::floor;
using ::log2;
using ::pow;
using ::round;
using ::sqrt;
using ::size_t;

template <typename First, typename Second>
struct pair {
  First first;
  Second second;
};
template <typename First, typename Second>
__device__ constexpr pair<First, Second> make_pair(First first, Second second) {
  return {first, second};
}

template <typename T>
__device__ constexpr const T& max(const T& a, const T& b) {
  return a < b ? b : a;
}
template <typename T>
__device__ constexpr const T& min(const T& a, const T& b) {
  return b < a ? b : a;
}
}  // namespace std

// Of cuda.h and cudaTypedefs.h: what makes tensor maps.
using cuuint32_t = unsigned int;
using cuuint64_t = unsigned long long;
#define CUDA_SUCCESS cudaSuccess
using CUresult = cudaError_t;
enum CUtensorMapDataType {
  CU_TENSOR_MAP_DATA_TYPE_UINT8,
  CU_TENSOR_MAP_DATA_TYPE_UINT16,
  CU_TENSOR_MAP_DATA_TYPE_UINT32,
  CU_TENSOR_MAP_DATA_TYPE_INT32,
  CU_TENSOR_MAP_DATA_TYPE_UINT64,
  CU_TENSOR_MAP_DATA_TYPE_INT64,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
  CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ,
  CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
  CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ
};
enum CUtensorMapInterleave {
  CU_TENSOR_MAP_INTERLEAVE_NONE,
  CU_TENSOR_MAP_INTERLEAVE_16B,
  CU_TENSOR_MAP_INTERLEAVE_32B
};
enum CUtensorMapSwizzle {
  CU_TENSOR_MAP_SWIZZLE_NONE,
  CU_TENSOR_MAP_SWIZZLE_32B,
  CU_TENSOR_MAP_SWIZZLE_64B,
  CU_TENSOR_MAP_SWIZZLE_128B
};
enum CUtensorMapL2promotion {
  CU_TENSOR_MAP_L2_PROMOTION_NONE,
  CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
  CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
  CU_TENSOR_MAP_L2_PROMOTION_L2_256B
};
enum CUtensorMapFloatOOBfill {
  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
  CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
};
#define cudaGetErrorName(error) ""
#define cuGetErrorString(...) cudaSuccess
#define cuGetErrorName(...) cudaSuccess
#define cuInit(...) cudaSuccess

namespace worklog {
// The arguments of cuTensorMapEncodeTiled, in a CUtensorMap: as in tensor_maps.py.
struct Encoded {
  unsigned long long sizes[5], strides[4];
  unsigned box[5];
  unsigned char steps[5], rank, type, interleave, swizzle, promotion, fill, is_encoded;
};
static_assert(sizeof(Encoded) <= sizeof(CUtensorMap));
}  // namespace worklog

__device__ inline CUresult cuTensorMapEncodeTiled(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void*, const cuuint64_t* sizes,
    const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* steps,
    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
    CUtensorMapFloatOOBfill fill) {
  worklog::Encoded encoded = {};
  for (int d = 0; d < 5 && d < rank; ++d) {
    encoded.sizes[d] = sizes[d];
    encoded.box[d] = box[d];
    encoded.steps[d] = steps[d];
    if (d > 0) encoded.strides[d - 1] = strides[d - 1];
  }
  encoded.rank = rank;
  encoded.type = type;
  encoded.interleave = interleave;
  encoded.swizzle = swizzle;
  encoded.promotion = promotion;
  encoded.fill = fill;
  encoded.is_encoded = 1;
  memcpy(map, &encoded, sizeof encoded);
  return cudaSuccess;
}

// The driver's function by its name, as programs that don't link libcuda get it.
using PFN_cuTensorMapEncodeTiled = decltype(&cuTensorMapEncodeTiled);
using PFN_cuTensorMapEncodeTiled_v12000 = PFN_cuTensorMapEncodeTiled;
#ifdef __clang__  // NVRTC knows them
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess };
enum { cudaEnableDefault };
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice };
#endif
namespace worklog {
template <typename T>
__device__ void set_found(T) {}
__device__ inline void set_found(cudaDriverEntryPointQueryResult* result) {
  *result = cudaDriverEntryPointSuccess;
}
template <typename... Options>
__device__ cudaError_t entry_point(const char*, void** function, Options... options) {
  *function = (void*)&cuTensorMapEncodeTiled;
  (set_found(options), ...);
  return cudaSuccess;
}
}  // namespace worklog
#define cudaGetDriverEntryPoint(...) worklog::entry_point(__VA_ARGS__)
#define cudaGetDriverEntryPointByVersion(...) worklog::entry_point(__VA_ARGS__)

namespace worklog {
// Where a host function's float pointers point: the bits there don't matter for a launch.
__device__ double memory;

// Tensor maps in the GPU's memory. Each block is a run of its own.
constexpr int MOST_RUNS = 4096;
__device__ unsigned char allocated_maps[MOST_RUNS];
__device__ inline CUtensorMap* new_map() {
  __shared__ CUtensorMap all[8];
  return &all[allocated_maps[blockIdx.x % MOST_RUNS]++ % 8];
}
}  // namespace worklog

template <typename T>
__device__ cudaError_t cudaMalloc(T** address, size_t bytes) {
  *address = bytes == sizeof(CUtensorMap) ? (T*)worklog::new_map() : (T*)&worklog::memory;
  return cudaSuccess;
}
template <typename Bytes, typename... Kind>
__device__ cudaError_t cudaMemcpy(CUtensorMap* to, const CUtensorMap* from, Bytes, Kind...) {
  *to = *from;
  return cudaSuccess;
}
template <typename Bytes, typename... Kind>
__device__ cudaError_t cudaMemcpyAsync(CUtensorMap* to, const CUtensorMap* from, Bytes, Kind...) {
  *to = *from;
  return cudaSuccess;
}

struct __half;
struct __nv_bfloat16;

namespace worklog {

constexpr int MAX_TEMPLATE = 16, MAX_ARGUMENTS = 32, MAX_MAPS = 4;

struct Record {
  unsigned long long kernel, shared;
  unsigned long long grid[3], block[3];
  unsigned long long values[MAX_TEMPLATE];  // of the template's parameters
  unsigned long long arguments[MAX_ARGUMENTS];
  CUtensorMap maps[MAX_MAPS];
};

// Each block is a run of the host code with inputs of its own.
__device__ const long long* all_inputs;
__device__ Record* all_records;
__device__ unsigned* launches;
__device__ int inputs_of_a_run, most_launches;

__device__ inline void begin(const long long* inputs, int count, Record* records, unsigned* counts,
                             int most) {
  all_inputs = inputs;
  inputs_of_a_run = count;
  all_records = records;
  launches = counts;
  most_launches = most;
}

template <typename T = int>
__device__ T input(int number) {
  return (T)all_inputs[(unsigned long long)blockIdx.x * inputs_of_a_run + number];
}

// The bits of an argument; those of a negative integer are a negative number of 64 bits.
__device__ inline unsigned long long word(int value) { return (long long)value; }
template <typename T>
__device__ unsigned long long word(const T& value) {
  unsigned long long bits = 0;
  if constexpr (sizeof(T) <= sizeof bits) memcpy(&bits, (const void*)&value, sizeof value);
  return bits;
}

// Keep an argument that is a tensor map or the address of one.
template <typename T>
__device__ void keep_map(Record&, int&, T) {}
__device__ inline void keep_map(Record& record, int& count, CUtensorMap map) {
  if (count < MAX_MAPS) record.maps[count++] = map;
}
__device__ inline void keep_map(Record& record, int& count, const CUtensorMap* map) {
  keep_map(record, count, *map);
}
__device__ inline void keep_map(Record& record, int& count, CUtensorMap* map) {
  keep_map(record, count, *map);
}

// The numbers of types, as in launches.py.
template <typename T> struct Kind { static constexpr int number = 0; };
template <> struct Kind<float> { static constexpr int number = 1; };
template <> struct Kind<double> { static constexpr int number = 2; };
template <> struct Kind<int> { static constexpr int number = 3; };
template <> struct Kind<unsigned> { static constexpr int number = 4; };
template <> struct Kind<long long> { static constexpr int number = 5; };
template <> struct Kind<float2> { static constexpr int number = 6; };
template <> struct Kind<float4> { static constexpr int number = 7; };
template <> struct Kind<::__half> { static constexpr int number = 8; };
template <> struct Kind<::__nv_bfloat16> { static constexpr int number = 9; };

template <typename T>
__device__ unsigned long long value(T number) {
  return (unsigned long long)number;
}
__device__ inline unsigned long long value(float number) { return __float_as_uint(number); }

// What comes before a call of a kernel: <<<grid, block, shared, stream>>>.
template <typename... Stream>
__device__ int configure(dim3 grid, dim3 block, unsigned long long shared = 0, Stream...) {
  const unsigned grid_sizes[3] = {grid.x, grid.y, grid.z};
  const unsigned block_sizes[3] = {block.x, block.y, block.z};
  unsigned number = launches[blockIdx.x];
  if (number < most_launches) {
    Record& record = all_records[(unsigned long long)blockIdx.x * most_launches + number];
    for (int axis = 0; axis < 3; ++axis) {
      record.grid[axis] = grid_sizes[axis];
      record.block[axis] = block_sizes[axis];
    }
    record.shared = shared;
  }
  return 0;
}

struct Values {
  unsigned long long numbers[MAX_TEMPLATE];
};

template <typename... Arguments>
__device__ void launched(int kernel, Values values, const Arguments&... arguments) {
  const unsigned number = launches[blockIdx.x]++;
  if (number >= most_launches) return;
  Record& record = all_records[(unsigned long long)blockIdx.x * most_launches + number];
  record.kernel = kernel;
  for (int n = 0; n < MAX_TEMPLATE; ++n) record.values[n] = values.numbers[n];
  const unsigned long long words[] = {word(arguments)..., 0};
  for (int n = 0; n < (int)sizeof...(arguments) && n < MAX_ARGUMENTS; ++n) {
    record.arguments[n] = words[n];
  }
  int maps = 0;
  (keep_map(record, maps, arguments), ...);
}

template <int... Places>
struct Sequence {};
template <int N, int... Places>
struct Counted : Counted<N - 1, N - 1, Places...> {};
template <int... Places>
struct Counted<0, Places...> {
  using type = Sequence<Places...>;
};

template <typename... P, int... Places>
__device__ void call(void (*kernel)(P...), void** addresses, Sequence<Places...>) {
  kernel(*(P*)addresses[Places]...);
}

// cudaLaunchKernel and cudaLaunchCooperativeKernel
template <typename... P>
__device__ cudaError_t by_addresses(void (*kernel)(P...), dim3 grid, dim3 block, void** addresses,
                                    unsigned long long shared = 0, cudaStream_t = 0) {
  configure(grid, block, shared);
  call(kernel, addresses, typename Counted<sizeof...(P)>::type());
  return cudaSuccess;
}

// cudaLaunchKernelEx
template <typename... P, typename... Arguments>
__device__ cudaError_t by_config(const cudaLaunchConfig_t* config, void (*kernel)(P...),
                                 Arguments... arguments) {
  configure(config->gridDim, config->blockDim, config->dynamicSmemBytes);
  kernel((P)arguments...);
  return cudaSuccess;
}

// cudaLaunchKernelExC
template <typename... P>
__device__ cudaError_t by_config_and_addresses(const cudaLaunchConfig_t* config,
                                               void (*kernel)(P...), void** addresses) {
  return by_addresses(kernel, config->gridDim, config->blockDim, addresses,
                      config->dynamicSmemBytes);
}

}  // namespace worklog

// What a program runs: it is defined behind the host code.
void worklog_first();

extern "C" __global__ void worklog_host(const long long* inputs, int count,
                                        worklog::Record* records, unsigned* launches, int most) {
  worklog::begin(inputs, count, records, launches, most);
  worklog_first();
}
