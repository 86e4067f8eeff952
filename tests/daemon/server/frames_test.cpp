// Raw frames after a completed upgrade, one connection each.
#include "tests/daemon/server/golden.hpp"
#include "tests/support/test_server.hpp"
#include "tests/support/web_client.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace {

namespace json = boost::json;
using support::HttpClient;
using support::TestServer;

struct Frame {
    int opcode = 0;
    std::string payload;
};

/// The first whole frame of a server's bytes, which are never masked. Removes it.
std::optional<Frame> take_frame(std::string& bytes) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
    if (bytes.size() < 2) return std::nullopt;
    std::size_t head = 2;
    std::size_t length = byte(1) & 0x7FU;
    if (length >= 126) {
        const std::size_t n = length == 126 ? 2 : 8;
        head += n;
        if (bytes.size() < head) return std::nullopt;
        length = 0;
        for (std::size_t i = 0; i < n; ++i) length = length << 8U | byte(2 + i);
    }
    if (bytes.size() < head + length) return std::nullopt;
    Frame frame{byte(0) & 0x0F, bytes.substr(head, length)};
    bytes.erase(0, head + length);
    return frame;
}

std::string from_hex(std::string_view hex) {
    std::string out;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
        out += static_cast<char>(std::stoi(std::string{hex.substr(i, 2)}, nullptr, 16));
    return out;
}

std::string masked_frame(int first_byte, const std::string& payload) {
    constexpr unsigned char kMask[] = {0x37, 0xfa, 0x21, 0x3d};
    std::string out(1, static_cast<char>(first_byte));
    out += static_cast<char>(0xFF);  // masked, 64-bit length
    for (int shift = 56; shift >= 0; shift -= 8)
        out += static_cast<char>(payload.size() >> static_cast<unsigned>(shift) & 0xFFU);
    for (const unsigned char c : kMask) out += static_cast<char>(c);
    for (std::size_t i = 0; i < payload.size(); ++i)
        out += static_cast<char>(static_cast<unsigned char>(payload[i]) ^ kMask[i % 4]);
    return out;
}

struct Outcome {
    int num_texts = 0;
    std::optional<std::string> pong;
    int close_code = 0;  // 1005: a close frame without a code; 1006: none
};

/// Reads until the peer closes, or until a text or pong was seen where one is enough.
Outcome read_outcome(HttpClient& client, int stop_after_texts, bool stop_after_pong) {
    Outcome out;
    std::string bytes;
    for (;;) {
        while (const auto frame = take_frame(bytes)) {
            if (frame->opcode == 1) ++out.num_texts;
            if (frame->opcode == 10) out.pong = frame->payload;
            if (frame->opcode == 8) {
                out.close_code = frame->payload.size() < 2
                                     ? 1005
                                     : static_cast<unsigned char>(frame->payload[0]) << 8 |
                                           static_cast<unsigned char>(frame->payload[1]);
                return out;
            }
        }
        if (stop_after_texts > 0 && out.num_texts >= stop_after_texts) return out;
        if (stop_after_pong && out.pong) return out;
        const std::string more = client.read_some();
        if (more.empty()) break;
        bytes += more;
    }
    out.close_code = 1006;
    return out;
}

TEST(Frames, EveryGoldenVectorBehavesAsStated) {
    server::Options options;
    options.limits.close_timeout = std::chrono::milliseconds{500};
    TestServer server{{.options = std::move(options)}};
    int num_checked = 0;
    const json::value golden = read_golden("ws_frame_vectors.json");
    for (const json::value& item : golden.at("vectors").as_array()) {
        const json::object& vector = item.as_object();
        const std::string id{vector.at("id").as_string()};
        SCOPED_TRACE(id);
        HttpClient client{server.port()};
        client.send(
            "GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
        std::string head;
        while (head.find("\r\n\r\n") == std::string::npos) head += client.read_some();

        std::string bytes;
        for (const json::value& part : vector.at("send_hex").as_array())
            bytes += from_hex(part.as_string());
        if (id == "text_64bit_len")
            bytes =
                masked_frame(0x81, R"({"type":"bogus","pad":")" + std::string(70'000, 'x') + "\"}");
        if (id == "fragments_over_limit") {
            const std::string mebibyte(1U << 20U, 'x');
            for (int i = 0; i < 17; ++i) bytes += masked_frame(i == 0 ? 0x01 : 0x00, mebibyte);
        }
        if (vector.contains("write_chunk_bytes"))
            for (const char c : bytes) client.send(std::string_view{&c, 1});
        else
            client.send(bytes);

        const json::object& expect = vector.at("expect").as_object();
        const json::value* replies = expect.if_contains("replies");
        const bool wants_text = expect.contains("reply") || expect.contains("then_reply");
        const int num_texts = !wants_text ? 0 : replies ? static_cast<int>(replies->as_int64()) : 1;
        const Outcome outcome =
            read_outcome(client, num_texts, expect.contains("pong_hex") && !wants_text);
        if (wants_text) {
            EXPECT_EQ(outcome.num_texts, num_texts);
        }
        if (const json::value* pong = expect.if_contains("pong_hex")) {
            EXPECT_EQ(outcome.pong, from_hex(pong->as_string()));
        }
        if (const json::value* close = expect.if_contains("close")) {
            const auto& codes = close->as_array();
            const bool is_listed = std::any_of(codes.begin(), codes.end(), [&](const auto& code) {
                return code.as_int64() == outcome.close_code;
            });
            EXPECT_TRUE(is_listed) << "closed with " << outcome.close_code;
        }
        if (expect.contains("no_reply")) {
            EXPECT_EQ(outcome.num_texts, 0);
        }
        ++num_checked;
    }
    EXPECT_EQ(num_checked, 60);
}

}  // namespace
