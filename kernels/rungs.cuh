// The rungs that main.cu runs: with -DRUNG=5, `rung` is the fifth, with its tile and its threads.
#pragma once

using Kernel = void(int, int, int, float, const float*, const float*, float, float*);
struct Rung { Kernel* kernel; int bm, bn, bk, threads, dynamic_shared_bytes; };

#if RUNG == 1
#include "01_naive.cu"
const Rung rung = {sgemm_naive<32, 32>, 32, 32, 1, 1024};
#elif RUNG == 2
#include "02_coalesced.cu"
const Rung rung = {sgemm_coalesced<32, 32>, 32, 32, 1, 1024};
#elif RUNG == 3
#include "03_shared.cu"
const Rung rung = {sgemm_shared<32, 32, 32>, 32, 32, 32, 1024};
#elif RUNG == 4
#include "04_tiles_1d.cu"
const Rung rung = {sgemm_tiles_1d<64, 64, 8, 8>, 64, 64, 8, 512};
#elif RUNG == 5
#include "05_tiles_2d.cu"
const Rung rung = {sgemm_tiles_2d<128, 128, 8, 8, 8>, 128, 128, 8, 256};
#elif RUNG == 6
#include "06_vectorized.cu"
const Rung rung = {sgemm_vectorized<128, 128, 8, 8, 8>, 128, 128, 8, 256};
#elif RUNG == 7
#include "07_conflict_free.cu"
const Rung rung = {sgemm_conflict_free<128, 128, 8, 8, 8>, 128, 128, 8, 256};
#elif RUNG == 8
#include "08_double_buffered.cu"
const Rung rung = {sgemm_double_buffered<128, 128, 8, 8, 8>, 128, 128, 8, 256};
#elif RUNG == 9
#include "09_autotuned.cu"
const Rung rung = {sgemm_autotuned<128, 256, 8, 8, 16, 1>, 128, 256, 8, 256};
#elif RUNG == 10
#include "10_pipelined.cu"
const Rung rung = {sgemm_pipelined<128, 128, 8, 8, 16, 2>, 128, 128, 8, 128};
#elif RUNG == 11
#include "11_register_banks.cu"
const Rung rung = {sgemm_register_banks<128, 128, 8, 8, 16, 2>, 128, 128, 8, 128};
#elif RUNG == 12
#include "12_warptiled.cu"
const Rung rung = {sgemm_warptiled<128, 128, 16, 64, 64, 2>, 128, 128, 16, 128};
#elif RUNG == 13
#include "13_lane_map.cu"
const Rung rung = {sgemm_lane_map<128, 128, 16, 64, 64, 2>, 128, 128, 16, 128};
#elif RUNG == 14
#include "14_async_copies.cu"
const Rung rung = {sgemm_async_copies<128, 128, 8, 64, 64, 5, 1>, 128, 128, 8, 128};
#elif RUNG == 15
#include "15_barriers.cu"
const Rung rung = {sgemm_barriers<128, 128, 8, 64, 64, 5, 1>, 128, 128, 8, 128};
#elif RUNG == 16
#include "16_specialized.cu"
const Rung rung = {sgemm_specialized<128, 256, 8, 64, 64, 8, 104, 200>, 128, 256, 8, 384, 99328};
#elif RUNG == 17
#include "17_bulk_copies.cu"
const Rung rung = {sgemm_bulk_copies<128, 256, 8, 64, 64, 8, 104, 200>, 128, 256, 8, 384, 99328};
#elif RUNG == 21
#include "21_tf32.cu"
const Rung rung = {sgemm_tf32<128, 128, 16, 64, 32>, 128, 128, 16, 256};
#elif RUNG == 22
#include "22_tf32x3.cu"
const Rung rung = {sgemm_tf32x3<128, 128, 16, 64, 32>, 128, 128, 16, 256};
#elif RUNG == 23
#include "23_fp16x3.cu"
const Rung rung = {sgemm_fp16x3<128, 128, 16, 64, 32>, 128, 128, 16, 256};
#elif RUNG == 24
#include "24_promoted.cu"
const Rung rung = {sgemm_promoted<128, 128, 16, 64, 32>, 128, 128, 16, 256};
#elif RUNG == 25
#include "25_wgmma.cu"
const Rung rung = {sgemm_wgmma<128, 128, 32, 4, 2>, 128, 128, 32, 640, 193648};
#else
#error "choose the number of a rung above, such as nvcc -DRUNG=17"
#endif
