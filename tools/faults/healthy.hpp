#pragma once

#include "cxx/plugin.hpp"

namespace faults {

/// The plugins that the image wraps: those of the build or package that it lies in,
/// ../plugins/{quant/ggml,attention/cpu-flash,device/cpu}.so from its own folder.
struct Healthy {
    const assay_quant* quant = nullptr;
    const assay_attention* attention = nullptr;
    const assay_device* device = nullptr;
};

/// Maps and opens them. Throws sdk::Error. [control]
void open_healthy(const assay_host* host);
void close_healthy();
/// After open_healthy().
[[nodiscard]] const Healthy& healthy();

/// The image's own tables; filled by their make_*(), after open_healthy().
void make_quant_table(assay_quant& table);
void make_attention_table(assay_attention& table);
void make_device_table(assay_device& table, assay_ops& ops);

}  // namespace faults
