#include "daemon/plugin/lanes.hpp"

#include "daemon/base/cgroup.hpp"
#include "daemon/base/check.hpp"

#include <climits>

#include <algorithm>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace plugin {
namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4 &&
              std::atomic<std::uint32_t>::is_always_lock_free);

// Returns at once when *word is no longer `seen`.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) noexcept {
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word, int count) noexcept {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

inline void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Spins until done() or for `time`. True when done.
template <class Done>
bool spin_until(std::chrono::microseconds time, Done&& done) noexcept {
    if (done()) return true;
    if (time.count() <= 0) return false;
    const auto end = std::chrono::steady_clock::now() + time;
    do {
        for (int i = 0; i < 16; ++i) {
            pause();
            if (done()) return true;
        }
    } while (std::chrono::steady_clock::now() < end);
    return false;
}

constexpr std::uint32_t generation_of(std::uint64_t ticket) noexcept {
    return static_cast<std::uint32_t>(ticket >> 32);
}

// Signals of the process go to threads that handle them, never to a lane. Faults stay where they
// are.
class SignalsBlocked {
public:
    SignalsBlocked() noexcept {
        sigset_t all;
        sigfillset(&all);
        for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
            sigdelset(&all, fault);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

private:
    sigset_t before_;
};

}  // namespace

std::uint32_t WorkerLanes::num_processors() {
    cpu_set_t set;
    CPU_ZERO(&set);
    const bool is_known = sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0;
    const std::uint32_t allowed = is_known ? static_cast<std::uint32_t>(CPU_COUNT(&set))
                                           : std::max(1u, std::thread::hardware_concurrency());
    return std::min(allowed, base::quota_processors());
}

WorkerLanes::WorkerLanes(Settings settings) : spin_{settings.spin} {
    CHECK(settings.width >= 1);
    if (settings.width > num_processors()) spin_ = std::chrono::microseconds{0};
    abi_.size = sizeof abi_;
    abi_.width = settings.width;
    abi_.ctx = this;
    abi_.run = [](const assay_lanes* lanes, std::uint32_t n, Item fn, void* arg) {
        static_cast<WorkerLanes*>(lanes->ctx)->run(n, fn, arg);
    };
    threads_.reserve(settings.width - 1);
    const SignalsBlocked blocked;
    try {
        for (std::uint32_t lane = 1; lane < settings.width; ++lane) {
            threads_.emplace_back([this, lane] { work(lane); });
            const std::string name =
                settings.name.substr(0, 11) + "/" + std::to_string(lane);  // 15 bytes at most
            pthread_setname_np(threads_.back().native_handle(), name.substr(0, 15).c_str());
        }
    } catch (...) {
        stop();
        throw;
    }
}

WorkerLanes::~WorkerLanes() {
    stop();
}

void WorkerLanes::stop() noexcept {
    stopping_.store(true);
    epoch_.fetch_add(1);
    futex_wake(epoch_, INT_MAX);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
}

void WorkerLanes::run(std::uint32_t n, Item fn, void* arg) noexcept {
    CHECK(!busy_.exchange(true, std::memory_order_acquire));  // one caller, and not from an item
    if (threads_.empty() || n <= 1) {
        for (std::uint32_t i = 0; i < n; ++i) fn(arg, i, 0);
        busy_.store(false, std::memory_order_release);
        return;
    }
    // The ticket is closed first. A late lane of the previous run may read the fields below while
    // they change; having seen any new value it must also see the closed ticket, so its claim
    // fails.
    const std::uint32_t generation = epoch_.load(std::memory_order_relaxed) + 1;
    ticket_.store(std::uint64_t{generation} << 32 | UINT32_MAX, std::memory_order_relaxed);
    item_.store(fn, std::memory_order_release);
    arg_.store(arg, std::memory_order_release);
    num_items_.store(n, std::memory_order_release);
    pending_.store(n, std::memory_order_relaxed);
    ticket_.store(std::uint64_t{generation} << 32, std::memory_order_release);
    epoch_.store(generation);  // sequentially consistent with sleepers_: no wake-up is lost
    if (const std::uint32_t asleep = sleepers_.load(); asleep > 0)
        futex_wake(epoch_, static_cast<int>(std::min(asleep, n - 1)));

    drain(generation, 0);
    wait_for_rest();
    busy_.store(false, std::memory_order_release);
}

void WorkerLanes::drain(std::uint32_t generation, std::uint32_t lane) noexcept {
    std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
    for (;;) {
        if (generation_of(ticket) != generation) return;
        const std::uint32_t n = num_items_.load(std::memory_order_acquire);
        const Item item = item_.load(std::memory_order_acquire);
        void* const arg = arg_.load(std::memory_order_acquire);
        const auto first = static_cast<std::uint32_t>(ticket);
        if (first >= n) return;
        const std::uint32_t count = std::max(1u, (n - first) / (4 * abi_.width));
        // A success proves that the run is still ours, hence that what was read above belongs to
        // it: it cannot end before the items claimed here do. Acquire also on failure: the ticket
        // may then be of a later run.
        if (!ticket_.compare_exchange_weak(ticket, ticket + count, std::memory_order_acq_rel,
                                           std::memory_order_acquire))
            continue;
        for (std::uint32_t i = first; i < first + count; ++i) item(arg, i, lane);
        if (pending_.fetch_sub(count) == count) {
            if (caller_sleeps_.load()) futex_wake(pending_, 1);
            return;
        }
        ticket = ticket_.load(std::memory_order_acquire);
    }
}

void WorkerLanes::wait_for_rest() noexcept {
    const auto done = [this] { return pending_.load(std::memory_order_acquire) == 0; };
    if (spin_until(spin_, done)) return;
    caller_sleeps_.store(true);
    for (std::uint32_t left = pending_.load(); left != 0; left = pending_.load())
        futex_wait(pending_, left);
    caller_sleeps_.store(false, std::memory_order_relaxed);
}

void WorkerLanes::wait_for_run(std::uint32_t seen) noexcept {
    if (spin_until(spin_, [&] { return epoch_.load(std::memory_order_acquire) != seen; })) return;
    sleepers_.fetch_add(1);
    while (epoch_.load() == seen) futex_wait(epoch_, seen);
    sleepers_.fetch_sub(1);
}

void WorkerLanes::work(std::uint32_t lane) noexcept {
    std::uint32_t seen = 0;
    while (!stopping_.load(std::memory_order_acquire)) {
        wait_for_run(seen);
        seen = epoch_.load(std::memory_order_acquire);
        drain(seen, lane);
    }
}

}  // namespace plugin
