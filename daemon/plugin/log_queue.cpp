#include "daemon/plugin/log_queue.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <pthread.h>

namespace plugin {
namespace {

// Escapes what would break a line or drive a terminal. Bytes from 0x80 on are kept: text is UTF-8.
void append_escaped(std::string& out, std::string_view text) {
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte != 0x7f) {
            out += c;
        } else if (c == '\n') {
            out += "\\n";
        } else if (c == '\t') {
            out += "\\t";
        } else {
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\x%02x", byte);
            out += escaped;
        }
    }
}

}  // namespace

// A bounded queue of many writers: `turn` says whose the slot is. It equals the position when free
// for writing, the position + 1 when readable, and moves on by the number of slots a round.
struct LogQueue::Slot {
    std::atomic<std::uint64_t> turn{0};
    int level = 0;
    std::uint16_t id_bytes = 0, text_bytes = 0;
    char id[kMaxId], text[kMaxText];
};

LogQueue::LogQueue(Sink sink, std::size_t num_slots)
    : sink_{std::move(sink)},
      mask_{std::bit_ceil(std::max<std::size_t>(num_slots, 2)) - 1},
      slots_{std::make_unique<Slot[]>(mask_ + 1)} {
    for (std::size_t i = 0; i <= mask_; ++i) slots_[i].turn.store(i, std::memory_order_relaxed);
    thread_ = std::thread{[this] { work(); }};
    pthread_setname_np(thread_.native_handle(), "plugin-log");
}

LogQueue::~LogQueue() {
    stopping_.store(true);
    signal_.fetch_add(1);
    signal_.notify_one();
    thread_.join();
}

bool LogQueue::write(int level, std::string_view plugin, std::string_view text) noexcept {
    std::uint64_t position = head_.load(std::memory_order_relaxed);
    Slot* slot = nullptr;
    for (;;) {
        slot = &slots_[position & mask_];
        const std::uint64_t turn = slot->turn.load(std::memory_order_acquire);
        if (turn == position) {
            if (head_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed))
                break;
        } else if (turn < position) {  // not read yet: full
            dropped_.fetch_add(1, std::memory_order_relaxed);
            return false;
        } else {
            position = head_.load(std::memory_order_relaxed);
        }
    }
    slot->level = level;
    slot->id_bytes = static_cast<std::uint16_t>(std::min(plugin.size(), kMaxId));
    slot->text_bytes = static_cast<std::uint16_t>(std::min(text.size(), kMaxText));
    // Not through the middle of a UTF-8 character.
    while (slot->text_bytes > 0 && slot->text_bytes < text.size() &&
           (static_cast<unsigned char>(text[slot->text_bytes]) & 0xc0) == 0x80)
        --slot->text_bytes;
    std::copy_n(plugin.begin(), slot->id_bytes, slot->id);
    std::copy_n(text.begin(), slot->text_bytes, slot->text);
    slot->turn.store(position + 1, std::memory_order_release);
    signal_.fetch_add(1);
    signal_.notify_one();
    return true;
}

bool LogQueue::take(LogLine& line) {
    Slot& slot = slots_[tail_ & mask_];
    if (slot.turn.load(std::memory_order_acquire) != tail_ + 1) return false;
    line.level = slot.level;
    line.plugin.assign(slot.id, slot.id_bytes);
    line.text.clear();
    append_escaped(line.text, {slot.text, slot.text_bytes});
    slot.turn.store(tail_ + mask_ + 1, std::memory_order_release);
    ++tail_;
    return true;
}

void LogQueue::work() {
    LogLine line;
    std::uint64_t reported = 0;
    for (;;) {
        const std::uint32_t seen = signal_.load();
        const bool last_round = stopping_.load();
        while (take(line)) sink_(line);
        if (const std::uint64_t dropped = num_dropped(); dropped != reported) {
            sink_({2, "host",
                   std::to_string(dropped - reported) +
                       " lines of plugins dropped: the log is slower than they write"});
            reported = dropped;
        }
        if (last_round) return;
        signal_.wait(seen);
    }
}

}  // namespace plugin
