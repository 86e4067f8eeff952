#include "daemon/app/cli/http_client.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>

#include <array>
#include <chrono>
#include <string_view>
#include <utility>

#include "daemon/base/error.hpp"

namespace app::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

constexpr std::chrono::seconds kConnectTime{10};
constexpr std::chrono::seconds kAnswerTime{120};  // between two words of the daemon, which keeps streams alive

/// The message of an OpenAI-style error body, or the body itself.
std::string error_message(const std::string& body) {
    boost::system::error_code ec;
    const boost::json::value parsed = boost::json::parse(body, ec);
    if (!ec && parsed.is_object())
        if (const auto* error = parsed.get_object().if_contains("error"); error != nullptr && error->is_object())
            if (const auto* text = error->get_object().if_contains("message"); text != nullptr && text->is_string())
                return std::string{text->get_string()};
    return body.substr(0, 300);
}

}  // namespace

struct HttpClient::Impl {
    asio::io_context io;
    beast::tcp_stream stream{io};
    beast::flat_buffer buffer;
    std::string host, port, key, url;

    [[noreturn]] void fail(const std::string& what, base::ExitCode code = base::ExitCode::unavailable) const {
        throw base::StartError{code, url + ": " + what};
    }

    /// Runs one operation of the stream to its end, or to its deadline. A daemon that hangs is not waited for.
    template <class Start>
    beast::error_code run(std::chrono::seconds at_most, Start start) {
        beast::error_code result;
        stream.expires_after(at_most);
        start([&result](beast::error_code ec, auto&&...) { result = ec; });
        io.restart();
        io.run();
        return result;
    }
    void check(const char* what, beast::error_code ec) const {
        if (ec == beast::error::timeout) fail(std::string{what} + ": no answer in time");
        if (ec) fail(std::string{what} + ": " + ec.message());
    }

    void connect() {
        beast::error_code ec;
        asio::ip::tcp::resolver resolver{io};
        const auto found = resolver.resolve(host, port, ec);
        check("cannot connect", ec);
        check("cannot connect",
              run(kConnectTime, [&](auto done) { stream.async_connect(found, std::move(done)); }));
    }

    void send(http::verb verb, const std::string& path, const std::string& body) {
        http::request<http::string_body> request{verb, path, 11};
        const bool is_ipv6 = host.find(':') != std::string::npos;
        request.set(http::field::host, (is_ipv6 ? '[' + host + ']' : host) + ":" + port);
        request.set(http::field::user_agent, "assayctl");
        if (!key.empty()) request.set(http::field::authorization, "Bearer " + key);
        if (!body.empty()) request.set(http::field::content_type, "application/json");
        request.body() = body;
        request.prepare_payload();
        check("sending", run(kAnswerTime, [&](auto done) { http::async_write(stream, request, std::move(done)); }));
    }
};

HttpClient::HttpClient(const std::string& url, std::string key) : impl_{std::make_unique<Impl>()} {
    impl_->url = url;
    impl_->key = std::move(key);
    constexpr std::string_view kScheme = "http://";
    if (!url.starts_with(kScheme)) impl_->fail("expected an address that begins with http://", base::ExitCode::usage);
    const std::string rest = url.substr(kScheme.size(), url.find('/', kScheme.size()) - kScheme.size());
    const auto colon = rest.rfind(':');
    const bool has_port = colon != std::string::npos && rest.find(']', colon) == std::string::npos;
    impl_->host = has_port ? rest.substr(0, colon) : rest;
    impl_->port = has_port ? rest.substr(colon + 1) : "80";
    if (impl_->host.starts_with('[') && impl_->host.ends_with(']'))
        impl_->host = impl_->host.substr(1, impl_->host.size() - 2);
    impl_->connect();
}

HttpClient::~HttpClient() = default;

std::string HttpClient::get(const std::string& path) {
    impl_->send(http::verb::get, path, {});
    http::response<http::string_body> response;
    impl_->check("reading", impl_->run(kAnswerTime, [&](auto done) {
        http::async_read(impl_->stream, impl_->buffer, response, std::move(done));
    }));
    if (response.result_int() != 200) impl_->fail(error_message(response.body()));
    return response.body();
}

std::string HttpClient::served_model() {
    const boost::json::value list = boost::json::parse(get("/v1/models"));
    const auto& data = list.at("data").as_array();
    if (data.empty()) impl_->fail("serves no model yet");
    return boost::json::value_to<std::string>(data[0].at("id"));
}

void HttpClient::stream(const std::string& path, const std::string& body,
                        const std::function<void(const std::string&)>& on_data) {
    impl_->send(http::verb::post, path, body);
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    impl_->check("reading", impl_->run(kAnswerTime, [&](auto done) {
        http::async_read_header(impl_->stream, impl_->buffer, parser, std::move(done));
    }));
    const bool is_error = parser.get().result_int() != 200;
    std::string pending;
    std::array<char, 4096> chunk{};
    while (!parser.is_done()) {
        parser.get().body().data = chunk.data();
        parser.get().body().size = chunk.size();
        const beast::error_code ec = impl_->run(kAnswerTime, [&](auto done) {
            http::async_read_some(impl_->stream, impl_->buffer, parser, std::move(done));
        });
        if (ec != http::error::need_buffer) impl_->check("reading", ec);
        pending.append(chunk.data(), chunk.size() - parser.get().body().size);
        if (is_error) continue;
        for (std::size_t end; (end = pending.find("\n\n")) != std::string::npos;) {
            const std::string event = pending.substr(0, end);
            pending.erase(0, end + 2);
            if (!event.starts_with("data: ") || event == "data: [DONE]") continue;
            on_data(event.substr(6));
        }
    }
    if (is_error) impl_->fail(error_message(pending));
}

}  // namespace app::cli
