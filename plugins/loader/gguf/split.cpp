#include "split.hpp"

#include "cxx/plugin.hpp"
#include "text.hpp"

#include <algorithm>
#include <cstdio>
#include <sys/stat.h>
#include <utility>

namespace gguf {
namespace {

constexpr std::uint32_t kMaxParts = 65535;

std::string part_suffix(std::uint32_t index, std::uint32_t count) {
    char text[48];
    std::snprintf(text, sizeof text, "-%05u-of-%05u.gguf", index + 1, count);
    return text;
}

std::optional<std::uint32_t> read_split_key(const Header& header, std::string_view name,
                                            const char* key, std::int64_t max) {
    const KeyValue* kv = header.find(key);
    if (kv == nullptr) return std::nullopt;
    const std::string at = std::string{"key \""} + key + "\" at byte " + std::to_string(kv->offset);
    if (kv->is_array() || !is_integer(kv->type))
        refuse(name, at + ": wrong type: expected an integer, found " + type_name(kv->type));
    const auto value = int_item(*kv);
    if (!value || *value < 0 || *value > max)
        refuse(name, at + ": bad split value: expected 0 to " + std::to_string(max) + ", found " +
                         (value ? std::to_string(*value) : "more than 2^63"));
    return static_cast<std::uint32_t>(*value);
}

/// A second header right behind the first file's content: the mark of parts joined with `cat`.
void check_not_joined(const Part& part, std::string_view name) {
    const std::span<const std::byte> bytes = part.file.content();
    const std::uint64_t end = content_end(part.header);
    std::uint64_t padded = end;
    (void)checked_round_up(end, part.header.alignment, padded);
    for (const std::uint64_t at : {end, padded}) {
        if (!part.file.contains(at, 8)) continue;
        const auto* found = reinterpret_cast<const char*>(bytes.data()) + at;
        if (std::string_view{found, 4} != "GGUF") continue;
        refuse(name, "at byte " + std::to_string(at) +
                         ": a second GGUF file begins, expected the end: parts were joined with "
                         "cat, which is not how they are merged; keep the parts apart and name one "
                         "of them, or merge them with: assayctl merge OUT PART...");
    }
}

Part open_part(std::string path, const Limits& limits) {
    MappedFile file = MappedFile::open(std::move(path));
    Header header = parse_header(file.content(), short_name(file.path()), limits);
    Part part{std::move(file), std::move(header)};
    check_not_joined(part, short_name(part.file.path()));
    return part;
}

/// "2, 5-7": one-based part numbers.
std::string ranges(const std::vector<std::uint32_t>& indices) {
    std::string text;
    for (std::size_t i = 0; i < indices.size();) {
        std::size_t j = i;
        while (j + 1 < indices.size() && indices[j + 1] == indices[j] + 1) ++j;
        text += (text.empty() ? "" : ", ") + std::to_string(indices[i] + 1);
        if (j > i) text += "-" + std::to_string(indices[j] + 1);
        i = j + 1;
        if (text.size() > 200 && i < indices.size())
            return text + " and " + std::to_string(indices.size() - i) + " more";
    }
    return text;
}

void check_all_present(const std::string& prefix, const SplitInfo& split, std::string_view name) {
    std::vector<std::uint32_t> missing;
    for (std::uint32_t i = 0; i < split.count; ++i) {
        struct stat info {};
        if (::stat(part_path(prefix, i, split.count).c_str(), &info) != 0) missing.push_back(i);
    }
    if (missing.empty()) return;
    throw sdk::Error{ASSAY_IO, std::string{name} + ": " + std::to_string(missing.size()) + " of " +
                                   std::to_string(split.count) + " parts are missing beside it: " +
                                   ranges(missing) + "; the first should be " +
                                   short_name(part_path(prefix, missing.front(), split.count))};
}

void check_same_set(const SplitInfo& found, const SplitInfo& expected, std::string_view name) {
    if (found.count != expected.count)
        refuse(name, "key \"split.count\": expected " + std::to_string(expected.count) +
                         " as in the other parts, found " + std::to_string(found.count));
    if (found.num_tensors && expected.num_tensors && *found.num_tensors != *expected.num_tensors)
        refuse(name, "key \"split.tensors.count\": expected " +
                         std::to_string(*expected.num_tensors) + " as in the other parts, found " +
                         std::to_string(*found.num_tensors));
}

void check_tensor_set(const std::vector<Part>& parts, const SplitInfo& split) {
    struct Name {
        std::string_view name;
        std::size_t part;
    };
    std::vector<Name> names;
    for (std::size_t p = 0; p < parts.size(); ++p)
        for (const TensorInfo& tensor : parts[p].header.tensors) names.push_back({tensor.name, p});
    const std::string first = short_name(parts.front().file.path());
    if (split.num_tensors && *split.num_tensors != names.size())
        refuse(first, "key \"split.tensors.count\": expected " +
                          std::to_string(*split.num_tensors) + " tensors in all parts, found " +
                          std::to_string(names.size()));
    std::sort(names.begin(), names.end(), [](const Name& a, const Name& b) {
        const int c = a.name.compare(b.name);
        return c != 0 ? c < 0 : a.part < b.part;
    });
    for (std::size_t i = 1; i < names.size(); ++i)
        if (names[i - 1].name == names[i].name)
            refuse(short_name(parts[names[i].part].file.path()),
                   "duplicate tensor: " + quoted(names[i].name) + " is also in part " +
                       std::to_string(names[i - 1].part + 1));
}

}  // namespace

SplitInfo read_split_info(const Header& header, std::string_view name) {
    SplitInfo split;
    const auto index = read_split_key(header, name, "split.no", kMaxParts);
    const auto count = read_split_key(header, name, "split.count", kMaxParts);
    split.num_tensors = read_split_key(header, name, "split.tensors.count", INT32_MAX);
    if (!count || *count <= 1) return split;  // merging leaves 0 or 1 behind
    if (!index)
        refuse(name, "key \"split.no\" is missing: expected it beside split.count = " +
                         std::to_string(*count));
    if (*index >= *count)
        refuse(name, "key \"split.no\": expected less than split.count = " +
                         std::to_string(*count) + ", found " + std::to_string(*index));
    split.index = *index;
    split.count = *count;
    return split;
}

std::string part_path(std::string_view prefix, std::uint32_t index, std::uint32_t count) {
    return std::string{prefix} + part_suffix(index, count);
}

std::optional<std::string> part_prefix(std::string_view path, const SplitInfo& split) {
    const std::string suffix = part_suffix(split.index, split.count);
    if (!path.ends_with(suffix)) return std::nullopt;
    return std::string{path.substr(0, path.size() - suffix.size())};
}

std::vector<Part> open_parts(const std::string& path, const Limits& limits) {
    Part named = open_part(path, limits);
    const std::string name = short_name(path);
    const SplitInfo split = read_split_info(named.header, name);
    std::vector<Part> parts;
    if (split.count == 1) {
        parts.push_back(std::move(named));
        return parts;
    }

    const auto prefix = part_prefix(path, split);
    if (!prefix)
        refuse(name, "bad split: the metadata says part " + std::to_string(split.index + 1) +
                         " of " + std::to_string(split.count) + ", expected a name that ends in " +
                         part_suffix(split.index, split.count) +
                         "; the other parts cannot be found: rename the files as they were");
    check_all_present(*prefix, split, name);

    parts.reserve(split.count);
    for (std::uint32_t i = 0; i < split.count; ++i) {
        if (i == split.index) {
            parts.push_back(std::move(named));  // NOLINT(bugprone-use-after-move): one i only
            continue;
        }
        parts.push_back(open_part(part_path(*prefix, i, split.count), limits));
        const std::string other = short_name(parts.back().file.path());
        const SplitInfo found = read_split_info(parts.back().header, other);
        check_same_set(found, split, other);
        if (found.index != i)
            refuse(other, "key \"split.no\": expected " + std::to_string(i) +
                              " by the file's name, found " + std::to_string(found.index));
    }
    check_tensor_set(parts, split);
    return parts;
}

std::vector<Part> assemble_parts(const std::vector<std::string>& paths, const Limits& limits) {
    struct Numbered {
        SplitInfo split;
        Part part;
    };
    std::vector<Numbered> found;
    for (const std::string& path : paths) {
        Part part = open_part(path, limits);
        const SplitInfo split = read_split_info(part.header, short_name(path));
        if (split.count == 1)
            refuse(short_name(path), "key \"split.count\": expected that of a part, found " +
                                         std::string{part.header.find("split.count") != nullptr
                                                         ? "that of a whole model"
                                                         : "no such key: the file is whole"});
        if (!found.empty()) check_same_set(split, found.front().split, short_name(path));
        found.push_back({split, std::move(part)});
    }
    std::vector<Numbered*> order;
    for (Numbered& numbered : found) order.push_back(&numbered);
    std::sort(order.begin(), order.end(), [](const Numbered* a, const Numbered* b) {
        return a->split.index < b->split.index;
    });
    const SplitInfo split = order.front()->split;
    std::vector<std::uint32_t> missing;
    std::uint32_t next = 0;
    for (const Numbered* numbered : order) {
        const std::string name = short_name(numbered->part.file.path());
        if (numbered->split.index < next)
            refuse(name, "key \"split.no\": " + std::to_string(numbered->split.index) +
                             " is also that of another part given");
        while (next < numbered->split.index) missing.push_back(next++);
        ++next;
    }
    while (next < split.count) missing.push_back(next++);
    if (!missing.empty())
        throw sdk::Error{ASSAY_IO, short_name(paths.front()) + ": " +
                                       std::to_string(missing.size()) + " of " +
                                       std::to_string(split.count) +
                                       " parts were not given: " + ranges(missing)};
    std::vector<Part> parts;
    parts.reserve(order.size());
    for (Numbered* numbered : order) parts.push_back(std::move(numbered->part));
    check_tensor_set(parts, split);
    return parts;
}

}  // namespace gguf
