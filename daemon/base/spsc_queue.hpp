#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

namespace base {

/// A bounded ring between one producer thread and one consumer thread. Lock-free; no allocation
/// after construction (besides what T itself owns).
template <class T>
class SpscQueue {
public:
    /// @param capacity  items at least; rounded up to a power of two
    explicit SpscQueue(std::size_t capacity)
        : slots_(std::bit_ceil(capacity < 2 ? std::size_t{2} : capacity)), mask_{slots_.size() - 1} {}

    /// Moves `item` in and returns true; leaves it untouched and returns false when full. Producer.
    bool push(T& item) {
        const std::size_t tail = tail_.load(std::memory_order_relaxed);
        if (tail - head_.load(std::memory_order_acquire) == slots_.size()) return false;
        slots_[tail & mask_] = std::move(item);
        tail_.store(tail + 1, std::memory_order_release);
        return true;
    }

    /// Moves the oldest item out and returns true; false when empty. Consumer.
    bool pop(T& out) {
        const std::size_t head = head_.load(std::memory_order_relaxed);
        if (head == tail_.load(std::memory_order_acquire)) return false;
        out = std::move(slots_[head & mask_]);
        head_.store(head + 1, std::memory_order_release);
        return true;
    }

    [[nodiscard]] bool empty() const {
        return head_.load(std::memory_order_acquire) == tail_.load(std::memory_order_acquire);
    }
    /// Items there are at this moment; at least so many can be popped. Consumer.
    [[nodiscard]] std::size_t size() const {
        return tail_.load(std::memory_order_acquire) - head_.load(std::memory_order_relaxed);
    }
    [[nodiscard]] std::size_t capacity() const { return slots_.size(); }

private:
    std::vector<T> slots_;
    std::size_t mask_;
    alignas(64) std::atomic<std::size_t> head_{0};
    alignas(64) std::atomic<std::size_t> tail_{0};
};

}  // namespace base
