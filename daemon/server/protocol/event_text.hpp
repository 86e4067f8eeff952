#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace server {

/// One serialised event on its way to a socket.
struct EventText {
    std::string json;
    /// Where further text of the same delta may be put in, escaped; 0 where nothing may.
    std::size_t insert_at = 0;
};

/// The same with its name, which server-sent events repeat before the data.
struct TypedEvent {
    std::string_view type;  ///< "response.created", …
    EventText text;
};

}  // namespace server
