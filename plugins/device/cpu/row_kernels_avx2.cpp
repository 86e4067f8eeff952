#define CPU_KERNELS kAvx2Kernels
#define CPU_TIER "avx2"
#include "row_kernels.inc"
