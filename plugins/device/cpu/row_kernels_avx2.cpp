#define CPU_KERNELS avx2_kernels
#define CPU_TIER "avx2"
#include "row_kernels.inc"
