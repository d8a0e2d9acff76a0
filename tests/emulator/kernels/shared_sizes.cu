// PTX ISA: in units of 128 bytes, without and with the 1024 that are reserved for each block.
extern "C" __global__ void k(unsigned* out) {
  extern __shared__ int dynamic[];
  __shared__ int tile[10];
  unsigned begin, end, place, seven;
  dynamic[0] = tile[3] = 1;
  asm("mov.u32 %0, %%total_smem_size;" : "=r"(out[0]));
  asm("mov.u32 %0, %%aggr_smem_size;" : "=r"(out[1]));
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(out[2]));
  asm("mov.u32 %0, %%reserved_smem_offset_cap;" : "=r"(out[3]));
  asm("mov.u32 %0, %%reserved_smem_offset_begin;" : "=r"(begin));
  asm("mov.u32 %0, %%reserved_smem_offset_end;" : "=r"(end));
  asm("mov.u32 %0, %%reserved_smem_offset_1;" : "=r"(place));
  asm volatile("st.shared.u32 [%1+284], 7; ld.shared.u32 %0, [%1+284];"
               : "=r"(seven) : "r"(place));
  out[4] = end - begin;
  out[5] = seven + (begin <= place && place + 288 <= end);
}
