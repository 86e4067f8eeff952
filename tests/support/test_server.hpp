#pragma once

#include "daemon/base/engine_link.hpp"
#include "daemon/base/service_state.hpp"
#include "daemon/metrics/registry.hpp"
#include "daemon/server/server.hpp"
#include "tests/support/fake_codec.hpp"
#include "tests/support/fake_engine.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace support {

/// Waits for something that another thread brings about. False after ten seconds.
template <class Condition>
bool eventually(Condition condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{10};
    while (!condition()) {
        if (std::chrono::steady_clock::now() > until) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return true;
}

struct TestServerSetup {
    server::Options options;
    std::vector<std::string> words;  ///< tokens FakeCodec::kFirstWord and on
    FakeEngine::Write script;        ///< default: the words, once
    bool ready = true;
    std::size_t max_submissions = 256;
    std::int32_t context_length = 4096;
    std::string reply_format = {};  ///< how replies are written: a row of reply::formats()
};

/// The real server on a free loopback port, with a scripted engine behind it.
class TestServer {
public:
    using Setup = TestServerSetup;

    explicit TestServer(Setup setup = {})
        : link{setup.max_submissions}, codec{std::make_shared<FakeCodec>(setup.words)} {
        codec->write_replies_as(setup.reply_format);
        setup.options.on_problem = [this](std::string_view line) {
            const std::lock_guard lock{mutex_};
            problems_.emplace_back(line);
        };
        setup.options.port = 0;
        setup.options.on_access = [this](const server::AccessRecord& record) {
            const std::lock_guard lock{mutex_};
            access_.push_back(record);
        };
        std::vector<std::int32_t> reply;
        for (std::size_t i = 0; i < setup.words.size(); ++i)
            reply.push_back(FakeCodec::kFirstWord + static_cast<std::int32_t>(i));
        if (!setup.script)
            setup.script = [reply](const base::Request&) { return FakeEngine::Script{reply}; };
        front = std::make_unique<server::Server>(std::move(setup.options), link, state, registry);
        front->set_model({.id = "demo-1b",
                          .aliases = {"demo"},
                          .created = 1790000000,
                          .context_length = setup.context_length,
                          .fingerprint = "fp_test"},
                         codec);
        engine = std::make_unique<FakeEngine>(link, FakeCodec::kEog, std::move(setup.script));
        if (setup.ready) state.set(base::ServiceState::Phase::ready, "");
        thread_ = std::thread{[this] {
            front->run();
            has_ended_ = true;
        }};
    }
    ~TestServer() {
        front->stop();
        thread_.join();
        engine.reset();
    }
    TestServer(const TestServer&) = delete;
    TestServer& operator=(const TestServer&) = delete;

    [[nodiscard]] std::uint16_t port() const { return front->port(); }
    [[nodiscard]] bool has_ended() const { return has_ended_; }
    [[nodiscard]] std::vector<server::AccessRecord> access() const {
        const std::lock_guard lock{mutex_};
        return access_;
    }
    /// What the operator was told.
    [[nodiscard]] std::vector<std::string> problems() const {
        const std::lock_guard lock{mutex_};
        return problems_;
    }
    /// The value of a series as /metrics writes it: "assay_requests_running{model=\"demo-1b\"}".
    [[nodiscard]] std::string metric(std::string_view series) const {
        const std::string text = registry.render();
        const auto at = text.find("\n" + std::string{series} + " ");
        if (at == std::string::npos) return "none";
        const auto begin = at + series.size() + 2;
        return text.substr(begin, text.find('\n', begin) - begin);
    }

    base::EngineLink link;
    base::ServiceState state;
    metrics::Registry registry;
    std::shared_ptr<FakeCodec> codec;
    std::unique_ptr<server::Server> front;
    std::unique_ptr<FakeEngine> engine;

private:
    mutable std::mutex mutex_;
    std::vector<server::AccessRecord> access_;
    std::vector<std::string> problems_;
    std::atomic<bool> has_ended_{false};
    std::thread thread_;
};

}  // namespace support
