#pragma once

#include "daemon/base/error.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace text {

/// What a chat template is rendered with. Views need to live until render() returns.
///
/// JSON goes to the template as it stands here: the order of keys and the spelling of strings
/// survive, which tool descriptions depend on.
struct RenderRequest {
    std::string_view template_source;
    std::string_view messages_json;  ///< array
    std::string_view tools_json;     ///< array, or "" for none
    std::string_view extra_json;     ///< object of further variables (chat_template_kwargs), or ""
    std::string_view bos_token;      ///< text of the BOS token, or ""
    std::string_view eos_token;
    bool add_generation_prompt = true;
    /// The instant that strftime_now shows, as local time; the epoch means now.
    std::chrono::system_clock::time_point now{};
};

struct RenderResult {
    enum class Status {
        ok,
        raised,     ///< the template refused the conversation; `message` is its own, for the client
        failed,     ///< the template does not fit the conversation, or does not compile
        timed_out,  ///< the worker was killed at the deadline
        crashed,    ///< the worker died; a fresh one serves the next request
        unavailable,  ///< no worker can be started at all
    };
    Status status = Status::ok;
    std::string text;     ///< the prompt, when ok
    std::string message;  ///< why there is none, otherwise; no traceback

    [[nodiscard]] bool is_ok() const noexcept { return status == Status::ok; }
    /// base::Errc::template_failed where the conversation is at fault, and `message` is for the
    /// client; template_broken where it is not, and `message` is for the operator.
    [[nodiscard]] boost::system::error_code error() const noexcept {
        if (is_ok()) return {};
        const bool is_clients = status == Status::raised || status == Status::failed;
        return is_clients ? base::Errc::template_failed : base::Errc::template_broken;
    }
};

struct TemplateWorkerOptions {
    const char* python = "/usr/bin/python3";   ///< with Jinja2 3.1 or newer
    std::chrono::milliseconds deadline{2000};  ///< of one render, template compilation included
    std::chrono::milliseconds start_deadline{20'000};
    std::size_t memory_bytes = std::size_t{512} << 20;  ///< address space of a worker
    std::size_t num_workers = 2;  ///< renders at once; one that hangs holds up none of the others
};

/// Renders chat templates in sandboxed Jinja2 processes.
///
/// Templates come with model files and are untrusted code. A worker has no network, no files, no
/// further processes, limited memory (seccomp and rlimits; see isolation()); one that hangs or
/// crashes is replaced and costs the one request.
///
/// Thread: any; render() blocks, so call it from a helper thread. Cost: 0.1 to 1 ms.
class TemplateWorker {
public:
    /// Starts the workers and waits for them. Does not throw: without a usable Jinja2 every
    /// render() says `unavailable` and why, so that other requests can be served.
    explicit TemplateWorker(TemplateWorkerOptions options = {});
    ~TemplateWorker();
    TemplateWorker(const TemplateWorker&) = delete;
    TemplateWorker& operator=(const TemplateWorker&) = delete;

    [[nodiscard]] RenderResult render(const RenderRequest& request);

    /// "" when templates can be rendered, else why not (as of the start).
    [[nodiscard]] const std::string& unavailable_reason() const noexcept { return unavailable_; }
    /// What confines a worker, for the start-up log: "rlimits, no_new_privs, seccomp".
    [[nodiscard]] const std::string& isolation() const noexcept { return isolation_; }
    [[nodiscard]] const std::string& jinja2_version() const noexcept { return jinja2_version_; }

private:
    struct Slot;
    struct Frame;

    [[nodiscard]] std::string start(Slot& slot, Frame& hello) const;
    [[nodiscard]] RenderResult render_on(Slot& slot, const RenderRequest& request);
    [[nodiscard]] Slot& take_slot();
    void give_back(Slot& slot);

    const TemplateWorkerOptions options_;
    std::string unavailable_;
    std::string isolation_;
    std::string jinja2_version_;

    std::vector<std::unique_ptr<Slot>> slots_;
    std::mutex mutex_;
    std::condition_variable slot_free_;
    std::vector<Slot*> free_;  // guarded by mutex_
};

/// Templates longer than this are refused.
inline constexpr std::size_t kMaxTemplateBytes = std::size_t{256} << 10;

}  // namespace text
