#include "rewrite.hpp"

#include "builder.hpp"
#include "cxx/plugin.hpp"
#include "output_file.hpp"
#include "text.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <span>
#include <unistd.h>

namespace gguf {
namespace {

constexpr std::uint64_t kCopyBytes = 8ull << 20;
constexpr std::uint32_t kMaxParts = 65535;  // split.count is a u16

/// A tensor and the file that has its bytes.
struct Source {
    const TensorInfo* tensor;
    const MappedFile* file;
};

bool is_split_key(std::string_view key) {
    return key == "split.no" || key == "split.count" || key == "split.tensors.count";
}

std::vector<Source> sources_of(const std::vector<Part>& parts) {
    std::vector<Source> sources;
    for (const Part& part : parts)
        for (const TensorInfo& tensor : part.header.tensors)
            sources.push_back({&tensor, &part.file});
    return sources;
}

void add_metadata(HeaderBuilder& header, const Header& from) {
    for (const KeyValue& kv : from.metadata)
        if (!is_split_key(kv.key)) header.add(kv);
}

/// Counts the bytes of all files of one call.
class Progress {
public:
    Progress(const RewriteProgress& on_progress, std::uint64_t total)
        : on_progress_{on_progress}, total_{total} {}
    void advance(std::uint64_t bytes) {
        done_ += bytes;
        if (on_progress_) on_progress_(done_, total_);
    }

private:
    const RewriteProgress& on_progress_;
    std::uint64_t total_, done_ = 0;
};

/// Adds the infos of `sources` to `header` and fills `out` from them.
class FileWriter {
public:
    FileWriter(HeaderBuilder header, std::span<const Source> sources)
        : header_{std::move(header)}, sources_{sources} {
        for (const Source& source : sources)
            offsets_.push_back(header_.add_tensor(source.tensor->name,
                                                  {source.tensor->ne.data(), source.tensor->rank},
                                                  *source.tensor->type));
    }
    [[nodiscard]] std::uint64_t bytes() const { return header_.file_bytes(); }

    void write(const OutputFile& out, Progress& progress) const {
        const std::string header = header_.bytes();
        out.write(0, header.data(), header.size());
        const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kCopyBytes);
        for (std::size_t i = 0; i < sources_.size(); ++i) {
            const TensorInfo& tensor = *sources_[i].tensor;
            for (std::uint64_t at = 0; at < tensor.bytes; at += kCopyBytes) {
                const std::uint64_t n = std::min(kCopyBytes, tensor.bytes - at);
                sources_[i].file->read(tensor.offset + at, n, buffer.get());
                out.write(header_.data_start() + offsets_[i] + at, buffer.get(), n);
                progress.advance(n);
            }
        }
        out.sync();
    }

private:
    HeaderBuilder header_;
    std::span<const Source> sources_;
    std::vector<std::uint64_t> offsets_;
};

std::uint64_t sum_of_bytes(std::span<const Source> sources) {
    std::uint64_t sum = 0;
    for (const Source& source : sources) sum += source.tensor->bytes;
    return sum;
}

// ---- split ------------------------------------------------------------------------------

/// The header of part `index` before its tensors.
HeaderBuilder part_header(const Header& whole, std::uint32_t index, std::uint32_t count,
                          std::size_t num_tensors) {
    HeaderBuilder header{whole.alignment};
    if (index == 0)
        add_metadata(header, whole);
    else if (const KeyValue* kv = whole.find("general.alignment"))
        header.add(*kv);
    header.add("split.no", static_cast<std::uint16_t>(index));
    header.add("split.count", static_cast<std::uint16_t>(count));
    header.add("split.tensors.count", static_cast<std::int32_t>(num_tensors));
    return header;
}

/// Where each part begins: indices into `sources`, the first of them 0.
std::vector<std::size_t> cut_into(std::uint32_t num_parts, std::span<const Source> sources,
                                  const std::string& name) {
    if (num_parts < 2 || num_parts > kMaxParts || num_parts > sources.size())
        throw sdk::Error{ASSAY_INVALID,
                         name + ": cannot be cut into " + std::to_string(num_parts) +
                             " parts: expected 2 to " +
                             std::to_string(std::min<std::size_t>(sources.size(), kMaxParts)) +
                             ", its number of tensors"};
    const auto total = static_cast<double>(sum_of_bytes(sources));
    std::vector<std::size_t> begins{0};
    double done = 0;
    for (std::size_t i = 0; i < sources.size(); ++i) {
        const std::size_t open = begins.size();  // parts begun so far
        const std::size_t left = num_parts - open;
        const bool is_full = done >= total * static_cast<double>(open) / num_parts;
        const bool is_needed = sources.size() - i == left;  // one tensor for each part to come
        if (left > 0 && i > begins.back() && (is_full || is_needed)) begins.push_back(i);
        done += static_cast<double>(sources[i].tensor->bytes);
    }
    return begins;
}

std::vector<std::size_t> cut_below(std::uint64_t max_bytes, std::span<const Source> sources,
                                   const Header& whole, const std::string& name) {
    std::vector<std::size_t> begins;
    HeaderBuilder part;
    for (std::size_t i = 0; i < sources.size(); ++i) {
        const TensorInfo& tensor = *sources[i].tensor;
        if (begins.empty() || part.file_bytes_with(tensor) > max_bytes) {
            part = part_header(whole, begins.empty() ? 0 : 1, 2, sources.size());
            if (part.file_bytes_with(tensor) > max_bytes)
                throw sdk::Error{ASSAY_INVALID, name + ": tensor " + quoted(tensor.name) +
                                                    " alone needs a part of " +
                                                    std::to_string(part.file_bytes_with(tensor)) +
                                                    " bytes, more than the " +
                                                    std::to_string(max_bytes) + " allowed"};
            begins.push_back(i);
        }
        part.add_tensor(tensor.name, {tensor.ne.data(), tensor.rank}, *tensor.type);
    }
    if (begins.size() < 2)
        throw sdk::Error{ASSAY_INVALID, name + ": fits into one part of " +
                                            std::to_string(part.file_bytes()) +
                                            " bytes, nothing to cut"};
    if (begins.size() > kMaxParts)
        throw sdk::Error{ASSAY_INVALID, name + ": would need " + std::to_string(begins.size()) +
                                            " parts, the format allows 65535"};
    return begins;
}

/// Names all files, the first part last: it is the one that is opened. All of them, or none.
void commit_all(std::deque<OutputFile>& files) {
    std::size_t i = files.size();
    try {
        while (i > 0) files[--i].commit();
    } catch (...) {
        while (++i < files.size()) ::unlink(files[i].path().c_str());
        throw;
    }
}

}  // namespace

void merge(const std::string& out, const std::vector<std::string>& paths,
           const RewriteProgress& on_progress) {
    if (paths.empty()) throw sdk::Error{ASSAY_INVALID, "merge: no part was named"};
    const std::vector<Part> parts =
        paths.size() == 1 ? open_parts(paths.front()) : assemble_parts(paths);
    const std::vector<Source> sources = sources_of(parts);
    HeaderBuilder header{parts.front().header.alignment};
    add_metadata(header, parts.front().header);
    const FileWriter writer{std::move(header), sources};
    OutputFile file{out, writer.bytes()};
    Progress progress{on_progress, sum_of_bytes(sources)};
    writer.write(file, progress);
    file.commit();
}

std::vector<std::string> split(const std::string& path, const std::string& prefix,
                               const SplitRule& rule, const RewriteProgress& on_progress) {
    if ((rule.num_parts == 0) == (rule.max_bytes == 0))
        throw sdk::Error{ASSAY_INVALID, "split: expected a number of parts or a size, one of them"};
    const std::vector<Part> from = open_parts(path);
    const Header& whole = from.front().header;
    const std::string name = short_name(path);
    const std::vector<Source> sources = sources_of(from);
    if (sources.empty()) throw sdk::Error{ASSAY_INVALID, name + ": has no tensors to cut between"};
    const std::vector<std::size_t> begins = rule.num_parts > 0
                                                ? cut_into(rule.num_parts, sources, name)
                                                : cut_below(rule.max_bytes, sources, whole, name);

    const auto count = static_cast<std::uint32_t>(begins.size());
    const std::span<const Source> all{sources};
    std::vector<FileWriter> writers;
    std::deque<OutputFile> files;  // all reserved before the first is filled
    std::vector<std::string> names;
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::size_t end = i + 1 < count ? begins[i + 1] : sources.size();
        writers.emplace_back(part_header(whole, i, count, sources.size()),
                             all.subspan(begins[i], end - begins[i]));
        names.push_back(part_path(prefix, i, count));
        files.emplace_back(names.back(), writers.back().bytes());
    }
    Progress progress{on_progress, sum_of_bytes(sources)};
    for (std::size_t i = 0; i < files.size(); ++i) writers[i].write(files[i], progress);
    commit_all(files);
    return names;
}

}  // namespace gguf
