#include "daemon/server/session/outbox.hpp"

#include "daemon/base/check.hpp"
#include "daemon/server/protocol/json_text.hpp"
#include "daemon/server/session/flow.hpp"

#include <utility>

namespace server {

Outbox::Serial Outbox::push(EventText event) {
    bytes_ += event.json.size();
    events_.push_back(std::move(event));
    changed();
    return first_ + events_.size() - 1;
}

bool Outbox::merge(Serial serial, std::string_view text) {
    if (serial < first_ || !(is_over_high() || (flow_ != nullptr && flow_->is_server_behind())))
        return false;
    EventText& event = events_[static_cast<std::size_t>(serial - first_)];
    if (event.insert_at == 0) return false;
    std::string escaped;
    append_escaped(escaped, text);
    event.json.insert(event.insert_at, escaped);
    event.insert_at += escaped.size();
    bytes_ += escaped.size();
    changed();
    return true;
}

std::string Outbox::pop() {
    CHECK(!events_.empty());
    std::string out = std::move(events_.front().json);
    events_.pop_front();
    ++first_;
    bytes_ -= out.size();
    changed();
    return out;
}

void Outbox::changed() {
    if (flow_ != nullptr) flow_->update(bytes_);
}

}  // namespace server
