#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "abi/plugin.h"

namespace plugin {

/// Options of one plugin as the configuration wrote them.
using Options = std::vector<std::pair<std::string, std::string>>;

/// Where an instance's tables come from. `image` keeps the mapped image (and its host) alive; it is
/// shared by every instance, buffer and graph made from it.
struct Source {
    std::string id;  ///< the plugin's id, for messages
    const assay_host* host = nullptr;
    std::shared_ptr<const void> image;
};

class Device;
class Stream;

/// Memory of a device, freed on destruction. Move-only.
class Buffer {
public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;
    ~Buffer();

    [[nodiscard]] void* data() const { return data_; }
    template <class T>
    [[nodiscard]] T* as() const {
        return static_cast<T*>(data_);
    }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

private:
    friend class Device;
    const Device* device_ = nullptr;
    assay_space space_ = ASSAY_SPACE_DEVICE;
    void* data_ = nullptr;
    std::uint64_t bytes_ = 0;
};

/// One opened device. Outlives every buffer and stream made from it.
///
/// Construction and make_* are [control] and throw base::ConfigError or base::AssayError with the
/// plugin's words.
class Device {
public:
    Device(Source source, const assay_device* api, int ordinal, const Options& options);
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    [[nodiscard]] const std::string& id() const { return source_.id; }
    [[nodiscard]] const assay_device_ref& ref() const { return ref_; }
    [[nodiscard]] const assay_device& api() const { return *api_; }
    [[nodiscard]] const assay_ops& ops() const { return *api_->ops; }
    [[nodiscard]] void* self() const { return self_; }
    /// The host may read and write device memory directly.
    [[nodiscard]] bool host_visible() const { return api_->host_visible; }

    [[nodiscard]] Buffer alloc(std::uint64_t bytes, assay_space space = ASSAY_SPACE_DEVICE) const;
    /// Queues a copy between any two spaces. Throws base::AssayError when the device refuses it.
    void copy(void* dst, const void* src, std::uint64_t bytes, const Stream& stream) const;

private:
    friend class Buffer;
    Source source_;
    const assay_device* api_;
    void* self_ = nullptr;
    assay_device_ref ref_{};
};

/// A stream, destroyed (after a sync) with this object.
class Stream {
public:
    Stream(const Device& device, const assay_lanes* lanes, int priority = 0);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    [[nodiscard]] const assay_stream* get() const { return &stream_; }
    /// Waits for everything queued. Throws base::AssayError with the device's words.
    void sync() const;

private:
    const Device& device_;
    assay_stream stream_{};
};

/// One quant instance on one device.
class Quant {
public:
    Quant(Source source, const assay_quant* api, const Device& device, const Options& options);
    ~Quant();
    Quant(const Quant&) = delete;
    Quant& operator=(const Quant&) = delete;

    [[nodiscard]] const std::string& id() const { return source_.id; }
    [[nodiscard]] const std::string& tier() const { return tier_; }
    [[nodiscard]] const assay_quant& api() const { return *api_; }
    [[nodiscard]] void* self() const { return self_; }
    /// The row of the format table, or null.
    [[nodiscard]] const assay_quant_format* format(const std::string& id) const;
    /// Empty when supported; otherwise the first condition that fails.
    [[nodiscard]] std::string unsupported_reason(const assay_quant_query& query) const;

private:
    Source source_;
    const assay_quant* api_;
    void* self_ = nullptr;
    std::string tier_;
};

/// One attention instance: the layers of one model on one device.
class Attention {
public:
    Attention(Source source, const assay_attention* api, const assay_attn_config& config,
              const std::vector<const assay_attn_layer*>& layers);
    ~Attention();
    Attention(const Attention&) = delete;
    Attention& operator=(const Attention&) = delete;

    [[nodiscard]] const std::string& id() const { return source_.id; }
    [[nodiscard]] const std::string& tier() const { return tier_; }
    [[nodiscard]] const assay_attention& api() const { return *api_; }
    [[nodiscard]] void* self() const { return self_; }
    /// True when the instance's capability row for the class lists the phase.
    [[nodiscard]] bool serves(int attn_class, assay_phase phase) const;
    /// True when decode of the class can be recorded in a graph.
    [[nodiscard]] bool is_capturable(int attn_class) const;

private:
    Source source_;
    const assay_attention* api_;
    void* self_ = nullptr;
    std::string tier_;
};

/// Options in the ABI's form; borrows from `options`.
[[nodiscard]] std::vector<assay_option> to_abi(const Options& options);

}  // namespace plugin
