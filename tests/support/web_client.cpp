#include "tests/support/web_client.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <boost/json/parse.hpp>

#include <algorithm>
#include <cctype>
#include <sys/socket.h>

namespace support {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace json = boost::json;
using tcp = asio::ip::tcp;
namespace {

template <class Body>
HttpAnswer to_answer(const http::response<Body>& response) {
    HttpAnswer out;
    out.status = static_cast<int>(response.result_int());
    for (const auto& field : response) {
        std::string name{field.name_string()};
        std::transform(name.begin(), name.end(), name.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        out.headers[name] = std::string{field.value()};
    }
    out.body = response.body();
    return out;
}

void reset_socket(tcp::socket& socket) {
    beast::error_code ignored;
    socket.set_option(asio::socket_base::linger{true, 0}, ignored);
    socket.close(ignored);
}

void connect(tcp::socket& socket, std::uint16_t port, int receive_buffer = 0) {
    socket.open(tcp::v4());
    if (receive_buffer > 0)
        socket.set_option(asio::socket_base::receive_buffer_size{receive_buffer});
    socket.connect({asio::ip::address_v4::loopback(), port});
}

}  // namespace

json::object HttpAnswer::json() const {
    return json::parse(body).as_object();
}

std::vector<std::string> HttpAnswer::events() const {
    std::vector<std::string> out;
    std::size_t at = 0;
    while (at < body.size()) {
        const auto end = body.find('\n', at);
        const std::string line = body.substr(at, end - at);
        if (line.starts_with("data: ")) out.push_back(line.substr(6));
        if (end == std::string::npos) break;
        at = end + 1;
    }
    return out;
}

struct HttpClient::Impl {
    asio::io_context io;
    tcp::socket socket{io};
    beast::flat_buffer buffer;
    std::string host;
};

HttpClient::HttpClient(std::uint16_t port) : impl_{std::make_unique<Impl>()} {
    connect(impl_->socket, port);
    impl_->host = "127.0.0.1:" + std::to_string(port);
}
HttpClient::~HttpClient() = default;

HttpAnswer HttpClient::request(std::string_view method, std::string_view target,
                               std::string_view body, const Headers& headers) {
    http::request<http::string_body> request;
    request.method_string(beast::string_view{method.data(), method.size()});
    request.target(beast::string_view{target.data(), target.size()});
    request.version(11);
    request.set(http::field::host, impl_->host);
    for (const auto& [name, value] : headers) request.set(name, value);
    request.body() = body;
    request.prepare_payload();
    beast::error_code ec;
    http::write(impl_->socket, request, ec);  // a refusal may come before the body is out
    for (;;) {
        http::response_parser<http::string_body> parser;
        parser.body_limit(std::size_t{256} << 20U);
        if (method == "HEAD") parser.skip(true);
        ec = {};
        http::read(impl_->socket, impl_->buffer, parser, ec);
        if (ec) return {};
        if (parser.get().result_int() != 100) return to_answer(parser.get());
    }
}

void HttpClient::send(std::string_view bytes) {
    beast::error_code ignored;
    asio::write(impl_->socket, asio::buffer(bytes.data(), bytes.size()), ignored);
}

std::string HttpClient::read_some() {
    char bytes[16384];
    beast::error_code ec;
    const std::size_t n = impl_->socket.read_some(asio::buffer(bytes), ec);
    return std::string(bytes, n);
}

std::string HttpClient::read_all() {
    std::string out;
    for (std::string part = read_some(); !part.empty(); part = read_some()) out += part;
    return out;
}

void HttpClient::finish_sending() {
    beast::error_code ignored;
    impl_->socket.shutdown(tcp::socket::shutdown_send, ignored);
}

void HttpClient::reset() {
    reset_socket(impl_->socket);
}

void HttpClient::set_receive_buffer(int bytes) {
    impl_->socket.set_option(asio::socket_base::receive_buffer_size{bytes});
}

struct WsClient::Impl {
    asio::io_context io;
    beast::websocket::stream<tcp::socket> ws{io};
    HttpAnswer handshake;
    bool is_open = false;
    int close_code = 0;
};

WsClient::WsClient(std::uint16_t port, const Headers& headers, std::string_view target,
                   int receive_buffer)
    : impl_{std::make_unique<Impl>()} {
    auto& ws = impl_->ws;
    connect(ws.next_layer(), port, receive_buffer);
    ws.set_option(beast::websocket::stream_base::decorator{
        [&headers](beast::websocket::request_type& request) {
            for (const auto& [name, value] : headers) request.set(name, value);
        }});
    ws.read_message_max(std::size_t{256} << 20U);
    beast::websocket::response_type response;
    beast::error_code ec;
    ws.handshake(response, "127.0.0.1:" + std::to_string(port),
                 beast::string_view{target.data(), target.size()}, ec);
    impl_->is_open = !ec;
    impl_->handshake = to_answer(response);
}
WsClient::~WsClient() = default;

bool WsClient::is_open() const {
    return impl_->is_open;
}
const HttpAnswer& WsClient::handshake() const {
    return impl_->handshake;
}

void WsClient::send(std::string_view text) {
    beast::error_code ignored;
    impl_->ws.text(true);
    impl_->ws.write(asio::buffer(text.data(), text.size()), ignored);
}

void WsClient::send_binary(std::string_view bytes) {
    beast::error_code ignored;
    impl_->ws.binary(true);
    impl_->ws.write(asio::buffer(bytes.data(), bytes.size()), ignored);
}

void WsClient::ping() {
    beast::error_code ignored;
    impl_->ws.ping({}, ignored);
}

void WsClient::on_pong(std::function<void()> call) {
    impl_->ws.control_callback(
        [call = std::move(call)](beast::websocket::frame_type kind, beast::string_view) {
            if (kind == beast::websocket::frame_type::pong) call();
        });
}

std::optional<std::string> WsClient::receive() {
    beast::flat_buffer buffer;
    beast::error_code ec;
    impl_->ws.read(buffer, ec);
    if (ec) {
        const auto code = static_cast<int>(impl_->ws.reason().code);
        impl_->close_code =
            ec == beast::websocket::error::closed ? (code == 0 ? 1005 : code) : 1006;
        return std::nullopt;
    }
    return std::string(static_cast<const char*>(buffer.data().data()), buffer.size());
}

json::object WsClient::next() {
    const auto text = receive();
    return text ? json::parse(*text).as_object() : json::object{};
}

std::vector<json::object> WsClient::until_terminal() {
    std::vector<json::object> out;
    do {
        out.push_back(next());
    } while (!out.back().empty() && !is_terminal(out.back()));
    return out;
}

std::vector<json::object> WsClient::turn(std::string_view message) {
    send(message);
    return until_terminal();
}

int WsClient::close_code() const {
    return impl_->close_code;
}

void WsClient::close() {
    beast::error_code ignored;
    impl_->ws.close(beast::websocket::close_code::normal, ignored);
}

void WsClient::reset() {
    reset_socket(impl_->ws.next_layer());
}

bool is_terminal(const json::object& event) {
    const json::value* type = event.if_contains("type");
    if (type == nullptr) return false;
    const auto& name = type->as_string();
    return name == "response.completed" || name == "response.incomplete" ||
           name == "response.failed" || name == "error" || name == "response.steer.failed";
}

}  // namespace support
