#pragma once

#include <functional>
#include <memory>
#include <string>

namespace boost::asio {
class io_context;
}

namespace server {

/// One thread for work that would hold up the io thread: rendering templates, tokenizing.
class Helper {
public:
    explicit Helper(boost::asio::io_context& io);
    ~Helper();

    /// Waits for the work that has begun; what has not is dropped, and so is what comes later.
    void stop();

    /// Runs `work` on the helper thread, and what it returns on the io thread. Io thread; what is
    /// captured must not refer to things that may be gone by then, other than weakly.
    ///
    /// @param failed  runs there instead when `work` throws, with the words of the exception
    void run(std::function<std::function<void()>()> work, std::function<void(std::string)> failed);

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace server
