// bare_sender: what a machine's sockets carry at most. Answers the handshakes of a given number of
// WebSocket connections, then sends each in turn one frame of a delta's size, by one send() a frame
// and nothing else, for a given time. Figures of the server are shares of this one.

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket/stream.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <vector>

namespace {

namespace asio = boost::asio;
namespace websocket = boost::beast::websocket;
using tcp = asio::ip::tcp;
using Socket = websocket::stream<tcp::socket>;

/// A text frame from a server: no mask. RFC 6455 section 5.2.
std::string frame_of(const std::string& text) {
    std::string out{'\x81'};
    out += '\x7e';
    out += static_cast<char>(text.size() >> 8U);
    out += static_cast<char>(text.size() & 0xffU);
    return out + text;
}

void send_all(int fd, const std::string& bytes) {
    for (std::size_t sent = 0; sent < bytes.size();) {
        const ssize_t n = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
        if (n > 0) {
            sent += static_cast<std::size_t>(n);
            continue;
        }
        pollfd wait{fd, POLLOUT, 0};
        ::poll(&wait, 1, 1000);
    }
}

void run(std::size_t num_connections, double seconds) {
    asio::io_context io{1};
    tcp::acceptor acceptor{io, {asio::ip::address_v4::loopback(), 0}};
    std::printf("listening %u\n", acceptor.local_endpoint().port());
    std::fflush(stdout);
    std::vector<std::unique_ptr<Socket>> sockets;
    while (sockets.size() < num_connections) {
        sockets.push_back(std::make_unique<Socket>(acceptor.accept()));
        sockets.back()->accept();
        boost::beast::flat_buffer request;
        sockets.back()->read(request);  // clients speak first; what they ask for is no matter here
    }
    const std::string frame = frame_of(
        R"({"type":"response.output_text.delta","sequence_number":1234,"item_id":"msg_0123456789abcdef0123456789abcdef",)"
        R"("output_index":0,"content_index":0,"delta":"123456789.","logprobs":[]})");
    const std::string last =
        frame_of(R"({"type":"response.completed","filler":")" + std::string(160, '.') + R"("})");
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                               std::chrono::duration<double>{seconds});
    unsigned long long num_frames = 0;
    while (std::chrono::steady_clock::now() < until) {
        for (const auto& socket : sockets) send_all(socket->next_layer().native_handle(), frame);
        num_frames += sockets.size();
    }
    for (const auto& socket : sockets) send_all(socket->next_layer().native_handle(), last);
    std::printf("tokens %llu\n", num_frames);
    std::fflush(stdout);
    for (const auto& socket : sockets) {  // until the client has gone
        char byte = 0;
        while (::recv(socket->next_layer().native_handle(), &byte, 1, 0) > 0) {
        }
    }
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 3) {
        std::fprintf(stderr, "usage: bare_sender NUM_CONNECTIONS SECONDS\n");
        return 64;
    }
    run(std::strtoul(argv[1], nullptr, 10), std::strtod(argv[2], nullptr));
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "bare_sender: %s\n", error.what());
    return 1;
}
