#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "abi/plugin.h"
#include "daemon/model/audit.hpp"

namespace model {

struct ResidencyOptions {
    bool lock = false;                ///< pages cannot be pushed out again
    std::uint64_t memory_bytes = 0;   ///< do nothing when the weights need more; 0 = what is available now
};

struct Residency {
    std::uint64_t bytes = 0;  ///< of the tensors that the model reads
    bool is_resident = false;
};

/// Brings the tensors that the model reads into memory, all lanes at once, and into this process's
/// page tables: otherwise the first tokens would wait for the disk, page by page. Where a device copies
/// weights, this is what reads the disk in parallel. More than there is memory for is left to be
/// read on demand.
///
/// @param lanes    null: one after the other
/// @param on_bytes bytes that were brought in, from any lane, at the same time
/// Throws base::ModelError where the file cannot be read, base::ConfigError where it cannot be locked.
/// Thread: control.
Residency make_resident(const ModelFile& file, const AuditReport& audit, const assay_lanes* lanes,
                        const ResidencyOptions& options, const std::function<void(std::uint64_t bytes)>& on_bytes = {});

/// Bytes of the tensors that the model reads, as they are stored.
[[nodiscard]] std::uint64_t bytes_read(const ModelFile& file, const AuditReport& audit);

/// Memory that can be had without pushing out anything in use (MemAvailable), in bytes; 0 = unknown.
[[nodiscard]] std::uint64_t available_memory();

}  // namespace model
