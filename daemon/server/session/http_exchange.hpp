#pragma once

#include "daemon/base/request.hpp"
#include "daemon/server/protocol/error.hpp"
#include "daemon/server/session/flow.hpp"
#include "daemon/server/session/outbox.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace server {

struct Core;

/// An HTTP request, read whole.
struct HttpRequest {
    std::string method;
    std::string path;  ///< without query, percent signs as they came
    std::string body;
    std::string log_id;     ///< also x-request-id
    std::string key_label;  ///< "" without keys
    std::uint64_t client = 0;
    base::Clock::time_point received{};
};

struct HttpReply {
    int status = 200;
    std::string body;
    std::string content_type = "application/json";
    std::vector<std::pair<std::string, std::string>> headers;
};

[[nodiscard]] HttpReply error_reply(const ApiError& error);

/// The answer to one HTTP request: either one reply, or a stream of server-sent events. Written by
/// a job, read by the session that owns the socket. Thread: io.
class HttpExchange {
public:
    /// @param wake  tells the session that there is something new; cheap, may be called often
    HttpExchange(Core& core, std::function<void()> wake);

    // ---- job ----------------------------------------------------------------------------------

    /// The whole answer; nothing may follow.
    void reply(HttpReply reply);
    /// The answer is an error: a reply, or the last event where a stream has begun.
    void refuse(const ApiError& error);

    /// One `data:` event, with an `event:` line where a name is given. The first one begins the
    /// stream, after which reply() is no longer possible.
    Outbox::Serial send(EventText event, std::string_view name = {});
    /// See Outbox::merge; asked before every delta, with serial 0 where it stands alone.
    bool merge(Outbox::Serial serial, std::string_view text) { return outbox_.merge(serial, text); }
    /// The stream is complete.
    void finish();
    /// The answer will be a stream: it may begin with keep_alive(), before there is anything to send.
    void expect_stream() { expects_stream_ = true; }
    [[nodiscard]] bool expects_stream() const { return expects_stream_; }

    [[nodiscard]] bool is_streaming() const { return is_streaming_; }
    /// For what is generated while it is sent.
    [[nodiscard]] Flow& flow() { return flow_; }

    // ---- session ------------------------------------------------------------------------------

    /// A comment line, which readers skip, so that proxies and clients see the stream alive. Only where
    /// the answer is a stream.
    void keep_alive();
    [[nodiscard]] std::optional<HttpReply> take_reply() { return std::exchange(reply_, {}); }
    [[nodiscard]] bool has_reply() const { return reply_.has_value(); }
    [[nodiscard]] bool is_finished() const { return is_finished_; }
    [[nodiscard]] Outbox& outbox() { return outbox_; }

private:
    Flow flow_;
    Outbox outbox_;
    std::function<void()> wake_;
    std::optional<HttpReply> reply_;
    bool expects_stream_ = false;
    bool is_streaming_ = false;
    bool is_finished_ = false;
};

/// Work that answers one request. Destroying it cancels what it runs. Thread: io.
class HttpJob {
public:
    virtual ~HttpJob() = default;
    /// The daemon leaves: end now, with an error.
    virtual void abort() = 0;
};

}  // namespace server
