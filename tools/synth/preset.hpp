#pragma once

#include "daemon/base/metadata.hpp"

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace synth {

/// A model to write, in the words of its own metadata: what the architecture's reader would find.
struct Preset {
    std::string_view name;
    std::string_view arch;  ///< general.architecture
    std::string_view
        keys;  ///< "block_count=22 rope.freq_base=1e4 …", without the architecture's prefix
    std::string_view pre;       ///< tokenizer.ggml.pre
    std::string_view optional;  ///< patterns of optional tensors that it has, space-separated
    std::string_view mix;       ///< formats, unless asked otherwise
    std::string_view about;
};

[[nodiscard]] std::span<const Preset> presets();
/// Null when there is none.
[[nodiscard]] const Preset* find_preset(std::string_view name);

/// Metadata keys in the order they were set, without the architecture's prefix.
class Keys {
public:
    /// Sets "key=value" words: true and false are bools, digits integers, digits with a point or an
    /// exponent floats, [a,b,…] an array, anything else a string. @throws std::invalid_argument
    void set(std::string_view assignments);
    void set(std::string key, base::MetaValue value);
    [[nodiscard]] const base::MetaValue* find(std::string_view key) const;
    /// @throws std::invalid_argument naming the key when it is absent or no integer
    [[nodiscard]] std::int64_t get_int(std::string_view key) const;

    [[nodiscard]] const std::vector<std::pair<std::string, base::MetaValue>>& all() const {
        return keys_;
    }

private:
    std::vector<std::pair<std::string, base::MetaValue>> keys_;
};

/// Shrinks a model to a few hundred kilobytes and keeps its shape: experts, groups, indexer,
/// partial RoPE, whatever keys it has.
void make_tiny(Keys& keys);

/// Trunk layers; the NextN blocks come on top.
void set_layers(Keys& keys, std::int64_t num_layers);

[[nodiscard]] std::vector<std::string> split_words(std::string_view text);

}  // namespace synth
