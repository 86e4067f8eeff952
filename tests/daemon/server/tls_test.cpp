// The listener with a certificate, through OpenSSL's own client.

#include "daemon/base/error.hpp"
#include "daemon/server/keys.hpp"
#include "daemon/server/transport/tls_stream.hpp"
#include "tests/support/certificate.hpp"
#include "tests/support/test_server.hpp"
#include "tests/support/web_client.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <boost/beast/websocket.hpp>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using support::TestServer;

/// A blocking TLS connection that trusts one certificate.
struct TlsClient {
    TlsClient(std::uint16_t port, const std::string& trusted, int max_version = 0) {
        context.load_verify_file(trusted);
        context.set_verify_mode(asio::ssl::verify_peer);
        if (max_version != 0) ::SSL_CTX_set_max_proto_version(context.native_handle(), max_version);
        stream.emplace(io, context);
        constexpr unsigned char kOffer[] = {2, 'h', '2', 8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
        ::SSL_set_alpn_protos(stream->native_handle(), kOffer, sizeof kOffer);
        beast::get_lowest_layer(*stream).connect({asio::ip::make_address("127.0.0.1"), port});
        stream->handshake(asio::ssl::stream_base::client, error);
    }
    http::response<http::string_body> request(http::verb verb, std::string_view target, const std::string& body = {}) {
        http::request<http::string_body> message{verb, beast::string_view{target.data(), target.size()}, 11};
        message.set(http::field::host, "localhost");
        message.body() = body;
        message.prepare_payload();
        http::write(*stream, message);
        http::response_parser<http::string_body> parser;
        parser.body_limit(64U << 20U);
        http::read(*stream, buffer, parser);
        return parser.release();
    }

    asio::io_context io;
    asio::ssl::context context{asio::ssl::context::tls_client};
    std::optional<beast::ssl_stream<beast::tcp_stream>> stream;
    beast::flat_buffer buffer;
    beast::error_code error;
};

class Tls : public testing::Test {
protected:
    server::Options options(bool needs_1_3 = false) {
        server::Options o;
        o.tls = server::TlsFiles{certificate.certificate_file(), certificate.key_file(), needs_1_3};
        return o;
    }
    static std::string complaint(const server::TlsFiles& files) {
        try {
            const server::TlsContext context{files};
            return {};
        } catch (const base::ConfigError& e) {
            return e.what();
        }
    }

    support::Certificate certificate;
};

TEST_F(Tls, AnswersOneRequestAfterTheOther) {
    TestServer server{{.options = options(), .words = {"Hello", " there"}}};
    TlsClient client{server.port(), certificate.certificate_file()};
    ASSERT_FALSE(client.error) << client.error.message();
    const unsigned char* protocol = nullptr;
    unsigned int bytes = 0;
    ::SSL_get0_alpn_selected(client.stream->native_handle(), &protocol, &bytes);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(protocol), bytes), "http/1.1");
    EXPECT_EQ(client.request(http::verb::get, "/readyz").body(), "ready\n");
    const auto answer = client.request(http::verb::post, "/v1/completions", R"({"model":"demo","prompt":"Hi"})");
    EXPECT_EQ(answer.result_int(), 200);
    EXPECT_NE(answer.body().find("Hello there"), std::string::npos) << answer.body();
}

TEST_F(Tls, StreamsBodiesLongerThanARecordBothWays) {
    TestServer server{{.options = options(), .words = {std::string(100'000, 'x')}, .context_length = 1 << 20}};
    TlsClient client{server.port(), certificate.certificate_file()};
    ASSERT_FALSE(client.error);
    const std::string prompt(300'000, 'p');
    const auto answer = client.request(http::verb::post, "/v1/completions",
                                       R"({"model":"demo","stream":true,"prompt":")" + prompt + R"("})");
    EXPECT_EQ(answer.result_int(), 200) << answer.body().substr(0, 300);
    EXPECT_NE(answer.body().find(std::string(100'000, 'x')), std::string::npos);
    EXPECT_TRUE(answer.body().ends_with("data: [DONE]\n\n"));
}

TEST_F(Tls, CarriesWebSockets) {
    TestServer server{{.options = options(), .words = {"a", "b"}}};
    TlsClient client{server.port(), certificate.certificate_file()};
    ASSERT_FALSE(client.error);
    beast::websocket::stream<beast::ssl_stream<beast::tcp_stream>&> ws{*client.stream};
    ws.handshake("localhost", "/v1/responses");
    std::string events;
    ws.write(asio::buffer(std::string{R"({"type":"response.create","model":"demo","input":"Hi"})"}));
    while (events.find("response.completed") == std::string::npos && events.find(R"("type":"error")") == std::string::npos) {
        beast::flat_buffer message;
        ws.read(message);
        events += beast::buffers_to_string(message.data()) + "\n";
    }
    EXPECT_NE(events.find("response.output_text.delta"), std::string::npos) << events;
    beast::error_code ec;
    ws.close(beast::websocket::close_code::normal, ec);
    EXPECT_TRUE(support::eventually([&] { return server.access().size() == 1; }));
    EXPECT_EQ(server.access().front().close_code, 1000);
}

TEST_F(Tls, NoticesAClientThatLeavesWhileItsAnswerIsMade) {
    support::TestServerSetup setup{.options = options(), .words = {"a"}};
    setup.script = [](const base::Request&) { return support::FakeEngine::Script{.hold = true}; };
    TestServer server{std::move(setup)};
    {
        TlsClient client{server.port(), certificate.certificate_file()};
        ASSERT_FALSE(client.error);
        const std::string body = R"({"model":"demo","prompt":"Hi"})";
        http::request<http::string_body> message{http::verb::post, "/v1/completions", 11, body};
        message.set(http::field::host, "localhost");
        message.prepare_payload();
        http::write(*client.stream, message);
        ASSERT_TRUE(support::eventually([&] { return server.engine->num_live() == 1; }));
    }
    EXPECT_TRUE(support::eventually([&] { return server.engine->num_live() == 0; }));
}

TEST_F(Tls, RefusesOlderVersionsWhereConfigured) {
    TestServer server{{.options = options(true)}};
    EXPECT_TRUE((TlsClient{server.port(), certificate.certificate_file(), TLS1_2_VERSION}.error));
    EXPECT_FALSE((TlsClient{server.port(), certificate.certificate_file()}.error));
}

TEST_F(Tls, PlainTextOnItsPortEndsTheConnectionAndNothingElse) {
    TestServer server{{.options = options()}};
    support::HttpClient plain{server.port()};
    plain.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(plain.read_all().find("HTTP/1.1 200"), std::string::npos);
    TlsClient client{server.port(), certificate.certificate_file()};
    EXPECT_EQ(client.request(http::verb::get, "/healthz").result_int(), 200);
}

TEST_F(Tls, APeerThatStaysSilentInTheHandshakeIsDropped) {
    auto o = options();
    o.limits.head_timeout = std::chrono::milliseconds{100};
    TestServer server{{.options = std::move(o)}};
    support::HttpClient silent{server.port()};
    EXPECT_EQ(silent.read_all(), "");  // ends by the server's doing
}

TEST_F(Tls, WrongFilesAreRefusedNamingKeyAndReason) {
    const std::string cert = certificate.certificate_file(), key = certificate.key_file();
    EXPECT_EQ(complaint({cert, key}), "");
    const support::Certificate other;
    const std::string folder = std::filesystem::path{cert}.parent_path().string();
    const std::string junk = folder + "/junk.pem";
    std::ofstream{junk} << "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
                        << "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    const std::string encrypted = folder + "/encrypted.pem";
    std::ofstream{encrypted} << "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    const struct {
        server::TlsFiles files;
        const char *key, *reason;
    } kCases[] = {
        {{"/nonexistent.pem", key}, "tls.certificate: /nonexistent.pem", "No such file"},
        {{folder, key}, "tls.certificate: ", ""},
        {{key, key}, "tls.certificate: ", "is no PEM file with a BEGIN CERTIFICATE"},
        {{junk, key}, "tls.certificate: ", "junk.pem"},
        {{cert, "/nonexistent.pem"}, "tls.key: /nonexistent.pem", "No such file"},
        {{cert, cert}, "tls.key: ", "is no PEM file with a PRIVATE KEY"},
        {{cert, junk}, "tls.key: ", "junk.pem"},
        {{cert, encrypted}, "tls.key: ", "is encrypted"},
        {{cert, other.key_file()}, "tls.key: ", "is not the key of"},
    };
    for (const auto& c : kCases) {
        const std::string said = complaint(c.files);
        EXPECT_TRUE(said.starts_with(c.key)) << said;
        EXPECT_NE(said.find(c.reason), std::string::npos) << said;
    }
}

TEST_F(Tls, AnExpiredCertificateServesWithAWarning) {
    const support::Certificate old{-1};
    const server::TlsContext context{{old.certificate_file(), old.key_file()}};
    EXPECT_NE(context.warning().find("expired on "), std::string::npos) << context.warning();
    EXPECT_EQ((server::TlsContext{{certificate.certificate_file(), certificate.key_file()}}.warning()), "");
}

}  // namespace
