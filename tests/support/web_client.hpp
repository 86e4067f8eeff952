#pragma once

#include <boost/json/object.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace support {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpAnswer {
    int status = 0;
    std::map<std::string, std::string> headers;  ///< names in lower case
    std::string body;

    [[nodiscard]] boost::json::object json() const;
    /// The `data:` lines of a stream of server-sent events.
    [[nodiscard]] std::vector<std::string> events() const;
};

/// A blocking HTTP connection on loopback.
class HttpClient {
public:
    explicit HttpClient(std::uint16_t port);
    ~HttpClient();
    /// Sends a request and reads its whole answer. status 0: the connection ended before one.
    HttpAnswer request(std::string_view method, std::string_view target, std::string_view body = {},
                       const Headers& headers = {});
    HttpAnswer get(std::string_view target) { return request("GET", target); }
    HttpAnswer post(std::string_view target, std::string_view body) {
        return request("POST", target, body);
    }
    /// Sends without reading.
    void send(std::string_view bytes);
    /// What arrives until the peer closes.
    std::string read_all();
    /// At least one byte, or "" at the end.
    std::string read_some();
    /// Nothing more is sent; answers are still read.
    void finish_sending();
    /// Ends the connection with RST.
    void reset();
    /// Shrinks what the kernel takes for a reader that does not read. Before anything is sent.
    void set_receive_buffer(int bytes);

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// A blocking WebSocket connection on loopback.
class WsClient {
public:
    /// Opens the connection; see refusal() for when it was not.
    explicit WsClient(std::uint16_t port, const Headers& headers = {},
                      std::string_view target = "/v1/responses", int receive_buffer = 0);
    ~WsClient();

    [[nodiscard]] bool is_open() const;
    [[nodiscard]] const HttpAnswer& handshake() const;

    void send(std::string_view text);
    void send_binary(std::string_view bytes);
    void ping();
    /// Called for each pong, while something is received.
    void on_pong(std::function<void()> call);
    /// The next message, or nothing when the connection has ended.
    std::optional<std::string> receive();
    /// The next message as JSON; an empty object when the connection has ended.
    boost::json::object next();
    /// Everything up to and with a terminal event of the default or any lane.
    std::vector<boost::json::object> turn(std::string_view message);
    std::vector<boost::json::object> until_terminal();
    /// After receive() returned nothing: the peer's close code, 1005 or 1006 without one.
    [[nodiscard]] int close_code() const;
    void close();
    void reset();

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

[[nodiscard]] bool is_terminal(const boost::json::object& event);

}  // namespace support
