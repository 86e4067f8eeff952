#define CPU_KERNELS kBaselineKernels
#define CPU_TIER "baseline"
#include "row_kernels.inc"
