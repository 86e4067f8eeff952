#include "daemon/plugin/instance.hpp"

#include "cxx/plugin.hpp"
#include "daemon/base/error.hpp"
#include "daemon/plugin/boundary.hpp"

namespace plugin {

std::vector<assay_option> to_abi(const Options& options) {
    std::vector<assay_option> out;
    out.reserve(options.size());
    for (const auto& [key, value] : options) out.push_back({key.c_str(), value.c_str()});
    return out;
}

// Nobody's memory before and behind every buffer, so that a plugin that writes a little beyond its
// output is found by the proof and not by the heap. Keeps the alignment that the ABI promises.
constexpr std::uint64_t kMarginBytes = 256;

// ---- Buffer -----------------------------------------------------------------------------------

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(space_, other.space_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

Buffer::~Buffer() {
    if (data_ != nullptr)
        device_->api_->free(device_->self_, space_, static_cast<char*>(data_) - kMarginBytes);
}

// ---- Device -----------------------------------------------------------------------------------

Device::Device(Source source, const assay_device* api, int ordinal, const Options& options)
    : source_{std::move(source)}, api_{api} {
    const auto abi_options = to_abi(options);
    assay_device_config config{};
    config.size = sizeof config;
    config.ordinal = ordinal;
    config.options = abi_options.data();
    config.num_options = static_cast<std::uint32_t>(abi_options.size());
    ref_.size = sizeof ref_;
    assay_error err = sdk::make_error();
    if (api_->open(source_.host, &config, &self_, &ref_, &err) != ASSAY_OK)
        throw base::ConfigError{"device plugin \"" + source_.id + "\": device " +
                                std::to_string(ordinal) + " cannot be opened: " + words(err)};
}

Device::~Device() { api_->close(self_); }

Buffer Device::alloc(std::uint64_t bytes, assay_space space) const {
    Buffer buffer;
    if (bytes == 0) return buffer;
    assay_error err = sdk::make_error();
    void* data = nullptr;
    if (api_->alloc(self_, space, bytes + 2 * kMarginBytes, &data, &err) != ASSAY_OK)
        throw base::ConfigError{"device plugin \"" + source_.id + "\": cannot allocate " +
                                std::to_string(bytes) + " bytes: " + words(err)};
    buffer.device_ = this;
    buffer.space_ = space;
    buffer.data_ = static_cast<char*>(data) + kMarginBytes;
    buffer.bytes_ = bytes;
    return buffer;
}

// ---- Stream -----------------------------------------------------------------------------------

void Device::copy(void* dst, const void* src, std::uint64_t bytes, const Stream& stream) const {
    if (api_->copy(self_, dst, src, bytes, stream.get()) != ASSAY_OK)
        throw base::AssayError{"device " + id() + ": a copy of " + std::to_string(bytes) + " bytes failed"};
}

Stream::Stream(const Device& device, const assay_lanes* lanes, int priority) : device_{device} {
    assay_error err = sdk::make_error();
    if (device.api().stream_create(device.self(), priority, lanes, &stream_, &err) != ASSAY_OK)
        throw base::AssayError{"device plugin \"" + device.id() + "\": no stream: " + words(err)};
}

Stream::~Stream() {
    device_.api().stream_sync(device_.self(), &stream_, nullptr);
    device_.api().stream_destroy(device_.self(), &stream_);
}

void Stream::sync() const {
    assay_error err = sdk::make_error();
    if (device_.api().stream_sync(device_.self(), &stream_, &err) != ASSAY_OK)
        throw base::AssayError{"device plugin \"" + device_.id() + "\": " + words(err)};
}

// ---- Quant ------------------------------------------------------------------------------------

Quant::Quant(Source source, const assay_quant* api, const Device& device, const Options& options)
    : source_{std::move(source)}, api_{api} {
    const auto abi_options = to_abi(options);
    assay_quant_config config{};
    config.size = sizeof config;
    config.device = &device.ref();
    config.options = abi_options.data();
    config.num_options = static_cast<std::uint32_t>(abi_options.size());
    char tier[32] = {};
    assay_error err = sdk::make_error();
    if (api_->create(source_.host, &config, &self_, tier, &err) != ASSAY_OK)
        throw base::ConfigError{"quant plugin \"" + source_.id + "\": " + words(err)};
    tier[sizeof tier - 1] = '\0';
    tier_ = tier;
}

Quant::~Quant() { api_->destroy(self_); }

const assay_quant_format* Quant::format(const std::string& id) const {
    for (std::uint32_t i = 0; i < api_->num_formats; ++i)
        if (id == api_->formats[i]->id) return api_->formats[i];
    return nullptr;
}

std::string Quant::unsupported_reason(const assay_quant_query& query) const {
    assay_error why = sdk::make_error();
    if (api_->supports(self_, &query, &why) != ASSAY_NONE) return {};
    return *words(why) != '\0' ? words(why) : "unsupported, and the plugin gives no reason";
}

// ---- Attention --------------------------------------------------------------------------------

Attention::Attention(Source source, const assay_attention* api, const assay_attn_config& config,
                     const std::vector<const assay_attn_layer*>& layers)
    : source_{std::move(source)}, api_{api} {
    char tier[32] = {};
    assay_error err = sdk::make_error();
    if (api_->create(source_.host, &config, layers.data(), static_cast<std::uint32_t>(layers.size()),
                     &self_, tier, &err) != ASSAY_OK)
        throw base::ConfigError{"attention plugin \"" + source_.id + "\": " + words(err)};
    tier[sizeof tier - 1] = '\0';
    tier_ = tier;
}

Attention::~Attention() { api_->destroy(self_); }

bool Attention::serves(int attn_class, assay_phase phase) const {
    for (std::uint32_t i = 0; i < api_->num_caps; ++i)
        if (api_->caps[i]->attn_class == attn_class && (api_->caps[i]->phases & phase) != 0) return true;
    return false;
}

bool Attention::is_capturable(int attn_class) const {
    for (std::uint32_t i = 0; i < api_->num_caps; ++i) {
        const assay_attn_cap& cap = *api_->caps[i];
        if (cap.attn_class == attn_class && (cap.phases & ASSAY_DECODE) != 0 &&
            (cap.flags & ASSAY_ATTN_CAPTURABLE) != 0)
            return true;
    }
    return false;
}

}  // namespace plugin
