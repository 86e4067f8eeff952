#include "daemon/server/helper.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include <exception>
#include <utility>

namespace server {

struct Helper::Impl {
    boost::asio::io_context& io;
    HelperLimits limits;
    boost::asio::thread_pool pool{limits.num_threads};
    std::size_t num_jobs = 0;  // io thread only, and so is what they hold
    std::size_t num_bytes = 0;
};

Helper::Helper(boost::asio::io_context& io, HelperLimits limits) : impl_{new Impl{io, limits}} {}

Helper::~Helper() {
    stop();
}

void Helper::stop() {
    impl_->pool.stop();
    impl_->pool.join();
}

bool Helper::run(std::size_t bytes, std::function<std::function<void()>()> work,
                 std::function<void(std::string)> failed) {
    Impl& impl = *impl_;
    // One job alone may be larger than the bound: messages have a bound of their own.
    const bool is_full = impl.num_jobs >= impl.limits.max_jobs ||
                         (impl.num_jobs > 0 && impl.num_bytes + bytes > impl.limits.max_bytes);
    if (is_full) return false;
    ++impl.num_jobs;
    impl.num_bytes += bytes;
    boost::asio::post(impl.pool, [&impl, bytes, work = std::move(work),
                                  failed = std::move(failed)]() mutable {
        std::function<void()> next;
        try {
            next = work();
        } catch (const std::exception& e) {
            next = [failed, why = std::string{e.what()}] { failed(why); };
        } catch (...) {
            next = [failed] { failed("an exception that is none of the standard library's"); };
        }
        work = nullptr;  // what it held is free before it is counted as such
        boost::asio::post(impl.io, [&impl, bytes, next = std::move(next)] {
            --impl.num_jobs;
            impl.num_bytes -= bytes;
            next();
        });
    });
    return true;
}

}  // namespace server
