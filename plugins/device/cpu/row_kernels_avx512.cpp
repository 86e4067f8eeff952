#define CPU_KERNELS kAvx512Kernels
#define CPU_TIER "avx512"
#include "row_kernels.inc"
