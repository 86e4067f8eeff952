#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace null_engine {

/// Replies by heart: which prompt gets which tokens.
///
/// The file is JSON:
///     {"format": "<row of reply::formats(), or empty>",
///      "replies": [{"when": "<found in the rendered prompt>", "pieces": ["<text of a token>", …]},
///      …]}
/// The first reply whose `when` is found counts. Prompts are what FakeCodec::render_chat makes.
class Script {
public:
    Script() = default;
    /// Throws std::runtime_error naming the file and the member at fault.
    explicit Script(const std::filesystem::path& path);

    /// The tokens of the reply, without an end-of-generation token; null: the script has none.
    [[nodiscard]] const std::vector<std::int32_t>* reply_to(
        std::span<const std::int32_t> prompt) const;

    [[nodiscard]] const std::string& format() const { return format_; }
    /// Texts of the tokens FakeCodec::kFirstWord and on.
    [[nodiscard]] const std::vector<std::string>& words() const { return words_; }

private:
    struct Reply {
        std::string when;
        std::vector<std::int32_t> tokens;
    };
    std::string format_;
    std::vector<std::string> words_;
    std::vector<Reply> replies_;
};

}  // namespace null_engine
