#include "daemon/plugin/validate.hpp"

#include <algorithm>
#include <set>

namespace plugin {
namespace {

using Problems = std::vector<std::string>;

// Readable bytes of a table whose first word says how many there are.
std::uint32_t stated_size(const void* table) {
    return *static_cast<const std::uint32_t*>(table);
}

bool size_ok(const void* row, std::size_t want, const std::string& what, Problems& problems) {
    if (row == nullptr) {
        problems.push_back(what + " is null");
        return false;
    }
    if (stated_size(row) >= want) return true;
    problems.push_back(what + " says " + std::to_string(stated_size(row)) + " bytes, want " +
                       std::to_string(want));
    return false;
}

struct Required {
    const char* name;
    bool present;
};

void require(const char* table, std::initializer_list<Required> functions, Problems& problems) {
    for (const Required& function : functions)
        if (!function.present)
            problems.push_back(std::string{table} + ": function " + function.name + " is null");
}

#define FN(table, name)                \
    Required {                         \
#name, (table).name != nullptr \
    }

void check_loader(const assay_loader& t, Problems& problems) {
    require("loader",
            {FN(t, probe), FN(t, open), FN(t, close), FN(t, meta_count), FN(t, meta),
             FN(t, tensor_count), FN(t, tensor), FN(t, file_count), FN(t, file), FN(t, file_bytes),
             FN(t, read)},
            problems);
    if (t.map != nullptr && t.unmap == nullptr) problems.push_back("loader: map without unmap");
    if (t.formats == nullptr || t.formats[0] == nullptr)
        problems.push_back("loader: names no file format");
}

void check_ops(const assay_ops& t, Problems& problems) {
    require("device ops", {FN(t, supports),    FN(t, copy),        FN(t, rmsnorm),
                           FN(t, layernorm),   FN(t, rope_table),  FN(t, rope),
                           FN(t, glu),         FN(t, add),         FN(t, scale),
                           FN(t, add_bias),    FN(t, hadamard),    FN(t, softcap),
                           FN(t, router),      FN(t, expert_sort), FN(t, expert_combine),
                           FN(t, gather_rows), FN(t, logits_edit), FN(t, logits_mask),
                           FN(t, logprobs),    FN(t, sample)},
            problems);
}

void check_device(const assay_device& t, Problems& problems) {
    require("device",
            {FN(t, count), FN(t, open), FN(t, close), FN(t, alloc), FN(t, free), FN(t, memory),
             FN(t, stream_create), FN(t, stream_destroy), FN(t, stream_sync), FN(t, event_create),
             FN(t, event_destroy), FN(t, event_record), FN(t, event_wait), FN(t, event_done),
             FN(t, event_sync), FN(t, event_elapsed_us), FN(t, copy), FN(t, fill)},
            problems);
    if (t.kind == nullptr || *t.kind == '\0') problems.push_back("device: kind is empty");
    const int num_graph = (t.capture_begin != nullptr) + (t.capture_end != nullptr) +
                          (t.graph_launch != nullptr) + (t.graph_destroy != nullptr);
    if (num_graph != 0 && num_graph != 4)
        problems.push_back("device: " + std::to_string(num_graph) +
                           " of 4 graph functions; want all or none");
    if (size_ok(t.ops, sizeof(assay_ops), "device: ops table", problems))
        check_ops(*t.ops, problems);
    if (t.collectives == nullptr) {
        if (t.collectives_absent == nullptr || *t.collectives_absent == '\0')
            problems.push_back("device: no collectives and no reason in collectives_absent");
    } else if (size_ok(t.collectives, sizeof(assay_collectives), "device: collectives table",
                       problems)) {
        const assay_collectives& c = *t.collectives;
        require("collectives",
                {FN(c, unique_id), FN(c, join), FN(c, leave), FN(c, abort), FN(c, health),
                 FN(c, all_reduce), FN(c, all_gather), FN(c, reduce_scatter), FN(c, broadcast)},
                problems);
        if (c.id_bytes == 0 || c.id_bytes > 256)
            problems.push_back("collectives: id of " + std::to_string(c.id_bytes) +
                               " bytes, want 1 to 256");
    }
}

void check_format(const assay_quant_format& f, Problems& problems) {
    const std::string what = "format " + std::string{f.id};
    constexpr std::uint32_t kMaxBlock = 1u << 20;
    if (f.block_rows == 0 || f.block_cols == 0 || f.block_bytes == 0 || f.block_rows > kMaxBlock ||
        f.block_cols > kMaxBlock || f.block_bytes > kMaxBlock)
        problems.push_back(what + ": block of " + std::to_string(f.block_rows) + " x " +
                           std::to_string(f.block_cols) + " in " + std::to_string(f.block_bytes) +
                           " bytes; want 1 to 1048576 each");
    if (f.num_sides > 4)
        problems.push_back(what + ": " + std::to_string(f.num_sides) + " sides, want at most 4");
    if (f.num_sides > 0 && f.side_names == nullptr)
        problems.push_back(what + ": sides without names");
    if (f.source == nullptr || *f.source == '\0')
        problems.push_back(what + ": does not say where it is defined (source)");
}

void check_quant(const assay_quant& t, Problems& problems) {
    require("quant",
            {FN(t, create), FN(t, destroy), FN(t, supports), FN(t, workspace_bytes), FN(t, rows),
             FN(t, matmul)},
            problems);
    if ((t.packed_layout == nullptr) != (t.repack == nullptr))
        problems.push_back("quant: packed_layout and repack come together or not at all");
    if (t.num_formats == 0 || t.formats == nullptr) {
        problems.push_back("quant: format table is empty");
        return;
    }
    std::set<std::string> ids;
    for (std::uint32_t i = 0; i < t.num_formats; ++i) {
        const std::string row = "quant: format row " + std::to_string(i);
        if (!size_ok(t.formats[i], sizeof(assay_quant_format), row, problems)) continue;
        const assay_quant_format& format = *t.formats[i];
        if (format.id == nullptr || *format.id == '\0') {
            problems.push_back(row + " has no id");
            continue;
        }
        if (!ids.insert(format.id).second)
            problems.push_back("quant: format \"" + std::string{format.id} + "\" twice");
        check_format(format, problems);
    }
}

std::string phase_list(std::uint32_t phases) {
    std::string list;
    for (const auto& [bit, name] :
         {std::pair{ASSAY_PREFILL, "prefill"}, {ASSAY_DECODE, "decode"}, {ASSAY_MIXED, "mixed"}})
        if ((phases & bit) != 0) list += (list.empty() ? "" : ", ") + std::string{name};
    return list.empty() ? "none" : list;
}

void check_cap(const assay_attn_cap& cap, const std::string& row, Problems& problems) {
    constexpr std::uint32_t kAll = ASSAY_PREFILL | ASSAY_DECODE | ASSAY_MIXED;
    if (cap.attn_class < ASSAY_ATTN_GQA || cap.attn_class > ASSAY_ATTN_MLA_DSA)
        problems.push_back(row + ": unknown attention class " + std::to_string(cap.attn_class));
    if ((cap.phases & cap.phases_absent) != 0)
        problems.push_back(
            row + ": both served and absent: " + phase_list(cap.phases & cap.phases_absent));
    if ((cap.phases | cap.phases_absent) != kAll)
        problems.push_back(row + ": neither served nor absent: " +
                           phase_list(kAll & ~(cap.phases | cap.phases_absent)) +
                           "; a table says what it does not do, too");
    if (((cap.phases | cap.phases_absent) & ~kAll) != 0)
        problems.push_back(row + ": unknown phase bits");
    if (cap.phases_absent != 0 && (cap.absent_reason == nullptr || *cap.absent_reason == '\0'))
        problems.push_back(row + ": no reason for absent phases (" + phase_list(cap.phases_absent) +
                           ")");
    if (cap.io_dtypes == 0 || cap.kv_dtypes == 0)
        problems.push_back(row + ": serves no dtype (io_dtypes or kv_dtypes is 0)");
}

void check_attention(const assay_attention& t, Problems& problems) {
    require("attention",
            {FN(t, check), FN(t, kv_layout), FN(t, create), FN(t, destroy), FN(t, sizes),
             FN(t, append), FN(t, run), FN(t, kv_read)},
            problems);
    if (t.num_caps == 0 || t.caps == nullptr) {
        problems.push_back("attention: capability table is empty");
        return;
    }
    bool has_dsa = false;
    for (std::uint32_t i = 0; i < t.num_caps; ++i) {
        const std::string row = "attention: capability row " + std::to_string(i);
        if (!size_ok(t.caps[i], sizeof(assay_attn_cap), row, problems)) continue;
        check_cap(*t.caps[i], row, problems);
        has_dsa =
            has_dsa || (t.caps[i]->attn_class == ASSAY_ATTN_MLA_DSA && t.caps[i]->phases != 0);
    }
    if (has_dsa && t.index == nullptr)
        problems.push_back("attention: serves MLA with DSA, but function index is null");
}

#undef FN

template <class Table>
void check(const void* table, void (*body)(const Table&, Problems&), Problems& problems) {
    if (size_ok(table, sizeof(Table), "table", problems))
        body(*static_cast<const Table*>(table), problems);
}

}  // namespace

std::vector<std::string> table_problems(std::string_view kind, const void* table) {
    Problems problems;
    if (kind == ASSAY_KIND_LOADER) {
        check<assay_loader>(table, check_loader, problems);
    } else if (kind == ASSAY_KIND_DEVICE) {
        check<assay_device>(table, check_device, problems);
    } else if (kind == ASSAY_KIND_QUANT) {
        check<assay_quant>(table, check_quant, problems);
    } else if (kind == ASSAY_KIND_ATTENTION) {
        check<assay_attention>(table, check_attention, problems);
    } else {
        problems.push_back("unknown kind \"" + std::string{kind} + "\"");
    }
    return problems;
}

}  // namespace plugin
