#define CPU_KERNELS baseline_kernels
#define CPU_TIER "baseline"
#include "row_kernels.inc"
