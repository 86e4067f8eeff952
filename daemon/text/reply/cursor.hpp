#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

namespace reply {

/// Whether a text goes on in some way; `more` when that depends on text that is yet to come.
enum class Found { yes, no, more };

/// The text of a reply that is not read yet.
///
/// What has been read, once there is an answer, and the answer itself depend only on the text from
/// here on, never on where it was cut into pieces: where too little is there to tell, the answer is
/// `more`, and once the reply has ended, `no`.
class Cursor {
public:
    void append(std::string_view text) {
        text_.erase(0, at_);
        at_ = 0;
        text_.append(text);
    }
    void close() noexcept { closed_ = true; }
    [[nodiscard]] bool is_closed() const noexcept { return closed_; }

    /// What may be read: no more than can still be given back.
    [[nodiscard]] std::string_view rest() const noexcept {
        return std::string_view{text_}.substr(
            at_, logging_ ? kMaxLogBytes - log_.size() : std::string_view::npos);
    }
    [[nodiscard]] bool empty() const noexcept { return rest().empty(); }
    /// There is text that may not be read.
    [[nodiscard]] bool is_cut_short() const noexcept { return at_ + rest().size() < text_.size(); }

    /// Reads on over `bytes`, which must be there.
    void take(std::size_t bytes) {
        if (logging_) log_.append(text_, at_, bytes);
        at_ += bytes;
        num_taken_ += bytes;
    }
    /// Bytes read since the reply began.
    [[nodiscard]] std::size_t num_taken() const noexcept { return num_taken_; }

    /// "no text is left": `no` to any mark once the reply has ended.
    [[nodiscard]] Found unknown() const noexcept { return closed_ ? Found::no : Found::more; }

    /// Whether the text begins with the mark; reads over it when it does.
    Found take_mark(std::string_view mark) {
        const std::string_view here = rest();
        if (here.starts_with(mark)) {
            take(mark.size());
            return Found::yes;
        }
        return mark.starts_with(here) ? unknown() : Found::no;
    }

    /// Likewise for the first of several marks that fits; `index` says which. Of two of which one
    /// begins with the other, the longer stands first.
    Found take_one_of(std::initializer_list<std::string_view> marks, std::size_t& index) {
        index = 0;
        for (const std::string_view mark : marks) {
            const Found found = take_mark(mark);
            if (found != Found::no) return found;
            ++index;
        }
        return Found::no;
    }

    /// How much of the text certainly comes before the mark. `found`: yes, the mark follows it.
    [[nodiscard]] std::size_t bytes_before(std::string_view mark, Found& found) const {
        const std::string_view here = rest();
        const std::size_t at = here.find(mark);
        if (at != here.npos) {
            found = Found::yes;
            return at;
        }
        found = unknown();
        if (closed_) return here.size();
        std::size_t held = std::min(here.size(), mark.size() - 1);
        while (!mark.starts_with(here.substr(here.size() - held))) --held;
        return here.size() - held;
    }

    /// Reads over white space. @return `yes` when something else follows
    Found skip_space(std::string* skipped = nullptr) {
        const std::string_view here = rest();
        const std::size_t n = std::min(here.find_first_not_of(" \t\r\n"), here.size());
        if (skipped != nullptr) skipped->append(here.substr(0, n));
        take(n);
        return empty() ? unknown() : Found::yes;
    }

    static constexpr std::size_t kMaxLogBytes = std::size_t{1} << 20;

    /// What is read from now on is kept, to give it back as text should it turn out to be no call.
    void start_log(std::string_view before = {}) {
        logging_ = true;
        log_ = before;
    }
    void stop_log() {
        logging_ = false;
        log_.clear();
    }
    [[nodiscard]] const std::string& log() const noexcept { return log_; }

private:
    std::string text_;
    std::size_t at_ = 0;
    std::size_t num_taken_ = 0;
    std::string log_;
    bool logging_ = false;
    bool closed_ = false;
};

}  // namespace reply
