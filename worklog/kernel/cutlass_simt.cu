// CUTLASS's SGEMM on CUDA cores, with its default tiles, as a host function.
// Run:     worklog run warptiled --against cutlass_simt
#include <cutlass/gemm/device/gemm.h>

using Row = cutlass::layout::RowMajor;
using Gemm = cutlass::gemm::device::Gemm<float, Row, float, Row, float, Row, float,
                                         cutlass::arch::OpClassSimt, cutlass::arch::Sm80>;

extern "C" void cutlass_simt(int M, int N, int K, float alpha, const float* A, const float* B,
                             float beta, float* C, cudaStream_t stream) {
  Gemm()({{M, N, K}, {A, K}, {B, N}, {C, N}, {C, N}, {alpha, beta}}, nullptr, stream);
}
