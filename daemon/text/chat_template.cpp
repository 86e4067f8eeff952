#include "daemon/text/chat_template.hpp"

#include "daemon/text/utf8.hpp"
#include "daemon/text/worker_process.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

namespace text {

namespace {

using Clock = WorkerProcess::Clock;
using Status = RenderResult::Status;

constexpr std::size_t kMinReplyBytes = std::size_t{1} << 20;  // that a worker may send, at least
constexpr std::size_t kMaxRequestBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxKnownTemplates = 32;  // compiled, per worker

void append_u32(std::string& out, std::size_t value) {
    for (int shift = 0; shift < 32; shift += 8)
        out.push_back(static_cast<char>((value >> shift) & 0xFF));
}

std::size_t read_u32(const char* bytes) {
    std::size_t value = 0;
    for (int i = 0; i < 4; ++i)
        value |= std::size_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    return value;
}

/// "2026-03-14T09:26:53", local time.
std::string local_time(std::chrono::system_clock::time_point now) {
    const std::time_t seconds = std::chrono::system_clock::to_time_t(
        now == std::chrono::system_clock::time_point{} ? std::chrono::system_clock::now() : now);
    std::tm parts{};
    localtime_r(&seconds, &parts);
    char buffer[32];
    const std::size_t n = std::strftime(buffer, sizeof buffer, "%Y-%m-%dT%H:%M:%S", &parts);
    return {buffer, n};
}

std::string string_at(const boost::json::object& object, std::string_view key) {
    const boost::json::value* value = object.if_contains(key);
    return value != nullptr && value->is_string() ? std::string{value->get_string()}
                                                  : std::string{};
}

bool bool_at(const boost::json::object& object, std::string_view key) {
    const boost::json::value* value = object.if_contains(key);
    return value != nullptr && value->is_bool() && value->get_bool();
}

}  // namespace

/// One reply of a worker.
struct TemplateWorker::Frame {
    boost::json::object header;
    std::string text;
};

/// One worker and the templates that it has compiled. Used by one thread at a time.
struct TemplateWorker::Slot {
    WorkerProcess process;
    std::vector<std::string> templates;  // the index is the key in the protocol

    void reset() {
        templates.clear();
        static_cast<void>(process.stop());
    }

    /// @param max_text_bytes  what the worker may send: it may claim any length
    WorkerProcess::Io receive(Frame& frame, std::size_t max_text_bytes,
                              Clock::time_point deadline) {
        std::array<char, 8> lengths;
        if (const auto io = process.receive(lengths, deadline); io != WorkerProcess::Io::done)
            return io;
        const std::size_t header_bytes = read_u32(lengths.data());
        const std::size_t text_bytes = read_u32(lengths.data() + 4);
        if (header_bytes > kMinReplyBytes || text_bytes > max_text_bytes)
            return WorkerProcess::Io::closed;
        std::string header(header_bytes, '\0');
        frame.text.resize(text_bytes);
        if (const auto io = process.receive(header, deadline); io != WorkerProcess::Io::done)
            return io;
        if (const auto io = process.receive(frame.text, deadline); io != WorkerProcess::Io::done)
            return io;
        boost::system::error_code error;
        const boost::json::value value = boost::json::parse(header, error);
        // A compromised worker may write anything: it is treated as one that broke.
        if (error || !value.is_object() || !is_valid_utf8(frame.text))
            return WorkerProcess::Io::closed;
        frame.header = value.get_object();
        return WorkerProcess::Io::done;
    }
};

TemplateWorker::TemplateWorker(TemplateWorkerOptions options) : options_{options} {
    const std::size_t n = std::max<std::size_t>(1, options_.num_workers);
    for (std::size_t i = 0; i < n; ++i) {
        slots_.push_back(std::make_unique<Slot>());
        free_.push_back(slots_.back().get());
    }
    Frame hello;
    unavailable_ = start(*slots_.front(), hello);  // the others start when they are needed
    jinja2_version_ = string_at(hello.header, "jinja2");
    isolation_ = string_at(hello.header, "isolation");
}

TemplateWorker::~TemplateWorker() = default;

std::string TemplateWorker::start(Slot& slot, Frame& hello) const {
    slot.reset();
    std::string problem = slot.process.start(options_.python, kTemplateWorkerScript,
                                             std::to_string(options_.memory_bytes));
    if (!problem.empty()) return problem;
    const auto io = slot.receive(hello, kMinReplyBytes, Clock::now() + options_.start_deadline);
    if (io == WorkerProcess::Io::timed_out) {
        slot.reset();
        return std::string{options_.python} + " did not start within " +
               std::to_string(options_.start_deadline.count()) + " ms";
    }
    if (io == WorkerProcess::Io::closed) {
        const std::string end = slot.process.stop();
        return std::string{options_.python} + " ended before it was ready (" + end + ")";
    }
    if (!bool_at(hello.header, "ok")) {
        slot.reset();
        return string_at(hello.header, "message");
    }
    return {};
}

TemplateWorker::Slot& TemplateWorker::take_slot() {
    std::unique_lock lock{mutex_};
    slot_free_.wait(lock, [this] { return !free_.empty(); });
    // The one used last is the likeliest to be running, and to know the template.
    Slot* slot = free_.back();
    free_.pop_back();
    return *slot;
}

void TemplateWorker::give_back(Slot& slot) {
    {
        const std::lock_guard lock{mutex_};
        free_.push_back(&slot);
    }
    slot_free_.notify_one();
}

RenderResult TemplateWorker::render(const RenderRequest& request) {
    if (!unavailable_.empty())
        return {Status::unavailable, {}, "chat templates cannot be rendered: " + unavailable_};
    if (request.template_source.size() > kMaxTemplateBytes)
        return {Status::failed, {}, "the chat template is longer than 256 KiB"};
    if (request.messages_json.size() + request.tools_json.size() + request.extra_json.size() >
        kMaxRequestBytes)
        return {Status::failed, {}, "the conversation is longer than 256 MiB"};
    if (!is_valid_utf8(request.template_source))
        return {Status::failed, {}, "the chat template is not UTF-8"};
    Slot& slot = take_slot();
    RenderResult result = render_on(slot, request);
    give_back(slot);
    return result;
}

RenderResult TemplateWorker::render_on(Slot& slot, const RenderRequest& request) {
    if (!slot.process.is_alive()) {
        Frame hello;
        if (const std::string problem = start(slot, hello); !problem.empty())
            return {Status::unavailable, {}, "chat templates cannot be rendered: " + problem};
    }

    const Clock::time_point deadline = Clock::now() + options_.deadline;
    auto known = std::find(slot.templates.begin(), slot.templates.end(), request.template_source);
    const bool is_new = known == slot.templates.end();
    const bool forget = is_new && slot.templates.size() >= kMaxKnownTemplates;
    if (forget) slot.templates.clear();
    if (is_new) {
        slot.templates.emplace_back(request.template_source);
        known = slot.templates.end() - 1;
    }

    const double backstop_seconds =
        std::chrono::duration<double>(options_.deadline).count() * 2 + 1;
    const std::string options = boost::json::serialize(boost::json::object{
        {"template", known - slot.templates.begin()},
        {"forget", forget},
        {"add_generation_prompt", request.add_generation_prompt},
        {"bos_token", request.bos_token},
        {"eos_token", request.eos_token},
        {"now", local_time(request.now)},
        {"backstop_seconds", backstop_seconds},
    });
    // An empty template is a template, and has to look different from "already sent".
    const std::string_view source = !is_new                           ? std::string_view{}
                                    : request.template_source.empty() ? std::string_view{"{##}"}
                                                                      : request.template_source;
    const std::string_view parts[] = {options, source, request.messages_json, request.tools_json,
                                      request.extra_json};
    std::string frame;
    for (const std::string_view part : parts) append_u32(frame, part.size());
    for (const std::string_view part : parts) frame.append(part);

    Frame reply;
    auto io = slot.process.send(frame, deadline);
    const std::size_t max_text_bytes = 4 * frame.size() + kMinReplyBytes;
    if (io == WorkerProcess::Io::done) io = slot.receive(reply, max_text_bytes, deadline);
    if (io == WorkerProcess::Io::timed_out) {
        slot.reset();
        return {Status::timed_out,
                {},
                "the chat template took longer than " + std::to_string(options_.deadline.count()) +
                    " ms and was stopped"};
    }
    if (io == WorkerProcess::Io::closed) {
        const std::string end = slot.process.stop();
        slot.reset();
        return {Status::crashed, {}, "the template worker ended while rendering (" + end + ")"};
    }
    if (bool_at(reply.header, "recycle")) slot.reset();
    if (bool_at(reply.header, "ok")) return {Status::ok, std::move(reply.text), {}};
    const bool raised = string_at(reply.header, "kind") == "raised";
    return {raised ? Status::raised : Status::failed, {}, string_at(reply.header, "message")};
}

}  // namespace text
