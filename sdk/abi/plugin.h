/* assay plugin ABI, whole. C11 and C++20; needs nothing but the standard headers. */
#ifndef ASSAY_ABI_PLUGIN_H
#define ASSAY_ABI_PLUGIN_H
#include "abi/common.h"
#include "abi/loader.h"
#include "abi/device.h"
#include "abi/quant.h"
#include "abi/attention.h"
#endif /* ASSAY_ABI_PLUGIN_H */
