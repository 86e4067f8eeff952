#include "daemon/server/helper.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include <exception>
#include <utility>

namespace server {

struct Helper::Impl {
    boost::asio::io_context& io;
    boost::asio::thread_pool pool{1};
};

Helper::Helper(boost::asio::io_context& io) : impl_{new Impl{io}} {}

Helper::~Helper() { stop(); }

void Helper::stop() {
    impl_->pool.stop();
    impl_->pool.join();
}

void Helper::run(std::function<std::function<void()>()> work, std::function<void(std::string)> failed) {
    boost::asio::post(impl_->pool, [&io = impl_->io, work = std::move(work), failed = std::move(failed)] {
        std::function<void()> next;
        try {
            next = work();
        } catch (const std::exception& e) {
            next = [failed, why = std::string{e.what()}] { failed(why); };
        }
        boost::asio::post(io, std::move(next));
    });
}

}  // namespace server
