#pragma once

#include "daemon/server/protocol/error.hpp"
#include "daemon/server/protocol/response_request.hpp"
#include "daemon/server/protocol/usage.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace server {

/// How a response ends.
enum class ResponseEnd : std::uint8_t { completed, incomplete, cancelled, failed };

/// Writes the response object (websocket.md 3.5): what is in the first events, in the last one, and
/// the whole of an answer that is not streamed.
class ResponseObject {
public:
    /// @param created_at  seconds since 1970
    ResponseObject(const ResponseRequest& request, std::string id, std::string_view fingerprint,
                   std::int64_t created_at);

    [[nodiscard]] const std::string& id() const { return id_; }
    [[nodiscard]] std::string in_progress() const;
    /// @param output        items separated by commas
    /// @param error         with ResponseEnd::failed
    /// @param completed_at  seconds since 1970
    [[nodiscard]] std::string ended(ResponseEnd end, std::string_view output, const Usage& usage,
                                    const ApiError* error, std::int64_t completed_at) const;

private:
    std::string id_;
    std::string head_;  // up to the status
    std::string tail_;  // what never changes, closing brace included
};

}  // namespace server
