#include "daemon/app/cli/http_client.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>

#include "daemon/base/error.hpp"

namespace app::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

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

    [[noreturn]] void fail(const std::string& what) const {
        throw base::StartError{base::ExitCode::usage, url + ": " + what};
    }

    void connect() {
        try {
            asio::ip::tcp::resolver resolver{io};
            stream.connect(resolver.resolve(host, port));
        } catch (const boost::system::system_error& e) {
            fail("cannot connect: " + e.code().message());
        }
    }

    void send(http::verb verb, const std::string& path, const std::string& body) {
        http::request<http::string_body> request{verb, path, 11};
        request.set(http::field::host, host + ":" + port);
        request.set(http::field::user_agent, "assayctl");
        if (!key.empty()) request.set(http::field::authorization, "Bearer " + key);
        if (!body.empty()) request.set(http::field::content_type, "application/json");
        request.body() = body;
        request.prepare_payload();
        http::write(stream, request);
    }
};

HttpClient::HttpClient(const std::string& url, std::string key) : impl_{std::make_unique<Impl>()} {
    impl_->url = url;
    impl_->key = std::move(key);
    constexpr std::string_view kScheme = "http://";
    if (!url.starts_with(kScheme)) impl_->fail("expected an address that begins with http://");
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
    try {
        impl_->send(http::verb::get, path, {});
        http::response<http::string_body> response;
        http::read(impl_->stream, impl_->buffer, response);
        if (response.result_int() != 200) impl_->fail(error_message(response.body()));
        return response.body();
    } catch (const boost::system::system_error& e) {
        impl_->fail(e.code().message());
    }
}

std::string HttpClient::served_model() {
    const boost::json::value list = boost::json::parse(get("/v1/models"));
    const auto& data = list.at("data").as_array();
    if (data.empty()) impl_->fail("serves no model yet");
    return boost::json::value_to<std::string>(data[0].at("id"));
}

void HttpClient::stream(const std::string& path, const std::string& body,
                        const std::function<void(const std::string&)>& on_data) {
    try {
        impl_->send(http::verb::post, path, body);
        http::response_parser<http::buffer_body> parser;
        parser.body_limit(boost::none);
        http::read_header(impl_->stream, impl_->buffer, parser);
        const bool is_error = parser.get().result_int() != 200;
        std::string pending;
        std::array<char, 4096> chunk{};
        while (!parser.is_done()) {
            parser.get().body().data = chunk.data();
            parser.get().body().size = chunk.size();
            beast::error_code ec;
            http::read(impl_->stream, impl_->buffer, parser, ec);
            if (ec && ec != http::error::need_buffer) throw boost::system::system_error{ec};
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
    } catch (const boost::system::system_error& e) {
        impl_->fail(e.code().message());
    }
}

}  // namespace app::cli
