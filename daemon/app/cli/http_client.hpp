#pragma once

#include <functional>
#include <memory>
#include <string>

namespace app::cli {

/// A small blocking HTTP/1.1 client for assayctl: one daemon, plain HTTP.
///
/// Everything throws base::StartError with the address and what went wrong: exit code 69 when the daemon does
/// not answer, or answers with an error, whose message is passed on; 64 for an address that is none.
class HttpClient {
public:
    /// @param url  "http://host:port", a path after it is ignored
    HttpClient(const std::string& url, std::string key);
    ~HttpClient();
    HttpClient(const HttpClient&) = delete;
    HttpClient& operator=(const HttpClient&) = delete;

    /// Body of a GET.
    [[nodiscard]] std::string get(const std::string& path);
    /// Id of the first model that the daemon lists.
    [[nodiscard]] std::string served_model();
    /// Posts JSON and hands the data of each server-sent event to `on_data`, "[DONE]" excepted.
    void stream(const std::string& path, const std::string& body,
                const std::function<void(const std::string&)>& on_data);

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace app::cli
