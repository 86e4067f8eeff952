#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace text {

/// Looks for stop strings in a text that arrives in deltas.
///
/// A suffix of the text that may still become a stop string is held back. The stop string that is
/// complete first ends the text; of several that end at the same byte, the longest. What is emitted
/// in total does not depend on how the text is cut into deltas.
///
/// Belongs to one stream. Cost: O(1) a byte and stop string.
class StopStrings {
public:
    struct Step {
        std::string emit;                  ///< text that is certain now
        std::optional<std::size_t> found;  ///< index of the stop string that ended the text
    };

    /// @param stops  well-formed UTF-8; empty ones are ignored
    explicit StopStrings(std::vector<std::string> stops);

    /// @param delta  well-formed UTF-8, cut between characters, so that `emit` is so too
    /// @return       what lies before the stop string once one is found; nothing after that
    [[nodiscard]] Step push(std::string_view delta);

    /// Ends the text: what was held back.
    [[nodiscard]] std::string flush();

    [[nodiscard]] bool is_stopped() const noexcept { return stopped_; }

private:
    struct Stop {
        std::string text;
        std::vector<std::size_t> border;  // [text.size()] longest proper border of each prefix
        std::size_t matched = 0;          // bytes of it that the text so far ends in
        std::size_t index = 0;            // as the caller numbered it
    };

    std::vector<Stop> stops_;
    std::string held_;  // ends in the longest prefix of any stop string
    bool stopped_ = false;
};

}  // namespace text
