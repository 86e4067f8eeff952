// The only place that knows OpenSSL's protocol functions.
#include "daemon/server/transport/tls_stream.hpp"

#include "daemon/base/error.hpp"

#include <boost/asio/ssl.hpp>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string_view>
#include <utility>

namespace server {
namespace asio = boost::asio;
namespace ssl = asio::ssl;

struct TlsContext::Impl {
    ssl::context context{ssl::context::tls_server};
};

namespace {

/// OpenSSL's newest complaint in words; its queue is empty afterwards.
std::string complaint() {
    const unsigned long code = ::ERR_peek_last_error();
    ::ERR_clear_error();
    const char* const text = code == 0 ? nullptr : ::ERR_reason_error_string(code);
    return text == nullptr ? "unknown reason" : text;
}

[[noreturn]] void refuse(const char* key, const std::string& file, const std::string& reason) {
    throw base::ConfigError{std::string{key} + ": " + file + ": " + reason};
}

/// Before OpenSSL looks: its words for a file that cannot be read are poor.
std::string read_pem(const char* key, const std::string& file, std::string_view wanted) {
    std::ifstream in{file, std::ios::binary};
    if (!in) refuse(key, file, std::strerror(errno));
    std::string text(1U << 20U, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (in.bad()) refuse(key, file, "cannot be read");  // a folder, for one
    text.resize(static_cast<std::size_t>(in.gcount()));
    if (text.find(wanted) == std::string::npos)
        refuse(key, file, "is no PEM file with a " + std::string{wanted});
    return text;
}

/// Clients that offer protocols for inside TLS are told the one there is; others are none the worse.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_bytes, const unsigned char* offered,
                    unsigned int offered_bytes, void*) {
    static constexpr unsigned char kOurs[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
    unsigned char* chosen = nullptr;
    if (::SSL_select_next_proto(&chosen, out_bytes, kOurs, sizeof kOurs, offered, offered_bytes) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

std::string expiry_warning(const std::string& file, SSL_CTX* context) {
    const X509* const certificate = ::SSL_CTX_get0_certificate(context);
    std::tm end{};
    if (certificate == nullptr || ::ASN1_TIME_to_tm(::X509_get0_notAfter(certificate), &end) != 1) return {};
    if (::timegm(&end) > std::time(nullptr)) return {};
    char day[16] = {};
    std::strftime(day, sizeof day, "%Y-%m-%d", &end);
    return "tls.certificate: " + file + " expired on " + day;
}

class OpenSslStream final : public TlsStream {
public:
    OpenSslStream(ssl::context& context, boost::beast::tcp_stream& tcp) : stream_{tcp, context} {}

    void async_handshake(Done done) override {
        stream_.async_handshake(ssl::stream_base::server, std::move(done));
    }
    void async_shutdown(Done done) override { stream_.async_shutdown(std::move(done)); }
    void async_read_some(asio::mutable_buffer buffer, DoneSome done) override {
        stream_.async_read_some(buffer, std::move(done));
    }
    void async_write_some(asio::const_buffer buffer, DoneSome done) override {
        stream_.async_write_some(buffer, std::move(done));
    }

private:
    ssl::stream<boost::beast::tcp_stream&> stream_;
};

}  // namespace

TlsContext::TlsContext(const TlsFiles& files) : impl_{std::make_unique<Impl>()} {
    ::ERR_clear_error();
    SSL_CTX* const context = impl_->context.native_handle();
    ::SSL_CTX_set_min_proto_version(context, files.needs_1_3 ? TLS1_3_VERSION : TLS1_2_VERSION);
    ::SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                       SSL_OP_PRIORITIZE_CHACHA | SSL_OP_IGNORE_UNEXPECTED_EOF);
    ::SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);  // idle connections keep none
    ::SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);  // tickets do, and hold no memory here
    ::SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);

    boost::system::error_code ec;
    const std::string chain = read_pem("tls.certificate", files.certificate, "BEGIN CERTIFICATE");
    impl_->context.use_certificate_chain(asio::buffer(chain), ec);
    if (ec) refuse("tls.certificate", files.certificate, ec.message());
    const std::string key = read_pem("tls.key", files.key, "PRIVATE KEY");
    if (key.find("ENCRYPTED") != std::string::npos)
        refuse("tls.key", files.key, "is encrypted; the daemon asks for no passphrase");
    impl_->context.use_private_key(asio::buffer(key), ssl::context::pem, ec);
    if (ec) {
        const bool is_other = ec.message().find("mismatch") != std::string::npos;
        refuse("tls.key", files.key, is_other ? "is not the key of " + files.certificate : ec.message());
    }
    if (::SSL_CTX_check_private_key(context) != 1)
        refuse("tls.key", files.key, "is not the key of " + files.certificate + " (" + complaint() + ")");
    warning_ = expiry_warning(files.certificate, context);
}

TlsContext::~TlsContext() = default;

std::unique_ptr<TlsStream> TlsStream::create(const TlsContext& context, boost::beast::tcp_stream& tcp) {
    return std::make_unique<OpenSslStream>(context.impl_->context, tcp);
}

}  // namespace server
