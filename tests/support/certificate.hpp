#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

namespace support {

/// A certificate for localhost and 127.0.0.1 that signs itself, and its key, in files of their own.
class Certificate {
public:
    /// @param days  until it expires; negative: it has
    explicit Certificate(int days = 1) {
        std::string folder = (std::filesystem::temp_directory_path() / "assay-tls-XXXXXX").string();
        if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error{"no folder for a certificate"};
        folder_ = folder;
        const std::unique_ptr<EVP_PKEY, decltype(&::EVP_PKEY_free)> key{::EVP_EC_gen("P-256"), ::EVP_PKEY_free};
        const std::unique_ptr<X509, decltype(&::X509_free)> cert{::X509_new(), ::X509_free};
        ::X509_set_version(cert.get(), X509_VERSION_3);
        ::ASN1_INTEGER_set(::X509_get_serialNumber(cert.get()), 1);
        constexpr long kDay = 86'400;
        ::X509_gmtime_adj(::X509_getm_notBefore(cert.get()), -10 * kDay);
        ::X509_gmtime_adj(::X509_getm_notAfter(cert.get()), days * kDay);
        X509_NAME* const name = ::X509_get_subject_name(cert.get());
        const auto* const host = reinterpret_cast<const unsigned char*>("localhost");
        ::X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, host, -1, -1, 0);
        ::X509_set_issuer_name(cert.get(), name);
        ::X509_set_pubkey(cert.get(), key.get());
        X509_EXTENSION* const names =
            ::X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
        ::X509_add_ext(cert.get(), names, -1);
        ::X509_EXTENSION_free(names);
        if (::X509_sign(cert.get(), key.get(), ::EVP_sha256()) == 0) throw std::runtime_error{"no certificate"};
        write(certificate_file(), [&](std::FILE* f) { ::PEM_write_X509(f, cert.get()); });
        write(key_file(), [&](std::FILE* f) {
            ::PEM_write_PrivateKey(f, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
        });
    }
    ~Certificate() {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }
    Certificate(const Certificate&) = delete;
    Certificate& operator=(const Certificate&) = delete;

    [[nodiscard]] std::string certificate_file() const { return folder_ + "/certificate.pem"; }
    [[nodiscard]] std::string key_file() const { return folder_ + "/key.pem"; }

private:
    template <class Write>
    static void write(const std::string& path, Write body) {
        const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{std::fopen(path.c_str(), "w"), std::fclose};
        body(file.get());
    }

    std::string folder_;
};

}  // namespace support
