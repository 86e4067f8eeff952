#pragma once

#include "daemon/text/reply/cursor.hpp"
#include "daemon/text/reply/event.hpp"
#include "daemon/text/reply/tools.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace reply {

/// A call whose name, arguments and marks together are longer is given up: a reply's memory is
/// bounded.
inline constexpr std::size_t kMaxHeldBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxNameBytes = 128;

/// Where text outside of calls belongs.
enum class Mode { content, reasoning };

/// How far a reader came.
enum class Progress {
    more,    ///< the text is used up
    done,    ///< what follows is no longer this reader's
    broken,  ///< the grammar does not go on like this (Calls::reason)
};

/// What readers of calls say, as events.
class Calls {
public:
    Calls(std::shared_ptr<const Tools> tools, Cursor& in) : tools_{std::move(tools)}, in_{in} {}

    void send_to(std::vector<Event>& events) noexcept { events_ = &events; }

    [[nodiscard]] const Tools& tools() const noexcept { return *tools_; }
    void require_declared(bool required) noexcept { declared_only_ = required; }
    /// Whether a call of this tool would be one. Ask before begin().
    [[nodiscard]] bool accepts(std::string_view name) const {
        return !name.empty() && name.size() <= kMaxNameBytes &&
               (!declared_only_ || tools_->contains(name));
    }

    void begin(std::string name, std::string id = {});
    void arguments(std::string_view text);
    void end(std::string id = {});
    /// Ends the open call as failed.
    void fail();
    [[nodiscard]] bool is_open() const noexcept { return open_; }
    [[nodiscard]] std::size_t num_calls() const noexcept { return num_calls_; }

    [[nodiscard]] Progress broken(std::string reason) {
        reason_ = std::move(reason);
        return Progress::broken;
    }
    [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

    /// For formats whose marks say what the text after them is.
    void switch_to(Mode mode) noexcept { mode_ = mode; }
    [[nodiscard]] Mode mode() const noexcept { return mode_; }

private:
    std::shared_ptr<const Tools> tools_;  // shared by the parsers of one request
    Cursor& in_;
    std::vector<Event>* events_ = nullptr;
    bool declared_only_ = false;
    bool open_ = false;
    std::size_t num_calls_ = 0;  // begun
    std::string reason_;
    Mode mode_ = Mode::content;
};

/// Reads the calls after one mark, as far as the text goes.
///
/// Until it has begun a call, `broken` means that the text was no call after all: it is given back
/// as text. Afterwards it means that the call has failed. Nothing a model writes throws.
class CallReader {
public:
    CallReader() = default;
    CallReader(const CallReader&) = delete;
    CallReader& operator=(const CallReader&) = delete;
    virtual ~CallReader() = default;
    [[nodiscard]] virtual Progress read(Cursor& in, Calls& out) = 0;
};

/// Appends the characters of a tool's name. @return `yes` when something else follows a name;
/// `no` when there is none, or one that is too long
[[nodiscard]] Found read_name(Cursor& in, std::string& name);

/// Appends the text before a mark and reads over the mark. @return `no` when there is too much of
/// it
[[nodiscard]] Found read_before(Cursor& in, std::string_view mark, std::size_t max_bytes,
                                std::string& text);

}  // namespace reply
