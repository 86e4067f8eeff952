#define CPU_KERNELS avx512_kernels
#define CPU_TIER "avx512"
#include "row_kernels.inc"
