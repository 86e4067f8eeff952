#include "daemon/model/kv_b.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "cxx/plugin.hpp"
#include "daemon/base/error.hpp"
#include "daemon/plugin/boundary.hpp"

namespace model {
namespace {

/// 0 for formats whose elements cannot be moved one by one.
std::size_t element_bytes_of(std::string_view format) {
    if (format == "f32") return 4;
    return format == "f16" || format == "bf16" ? 2 : 0;
}

template <class Element>
void transpose(const KvbShape& s, const std::byte* kv_b, std::byte* k_b) {
    const auto* from = reinterpret_cast<const Element*>(kv_b);
    auto* to = reinterpret_cast<Element*>(k_b);
    for (std::int64_t h = 0; h < s.heads; ++h) {
        const Element* head = from + h * (s.nope + s.v) * s.latent;
        for (std::int64_t l = 0; l < s.latent; ++l)
            for (std::int64_t n = 0; n < s.nope; ++n) *to++ = head[n * s.latent + l];
    }
}

/// |a - b|^2 and |a|^2 of one head.
struct Norms {
    double difference = 0.0, size = 0.0;

    void add(float a, float b) {
        difference += (double{a} - double{b}) * (double{a} - double{b});
        size += double{a} * double{a};
    }
    /// Infinite where one side alone is zero; NaN stays NaN.
    [[nodiscard]] double relative() const {
        return difference == 0.0 ? 0.0 : std::sqrt(difference / size);
    }
};

}  // namespace

std::string split_key_format(std::string_view format) {
    return std::string{element_bytes_of(format) != 0 ? format : "f32"};
}

void transpose_keys(const KvbShape& shape, std::size_t element_bytes, const std::byte* kv_b, std::byte* k_b) {
    if (element_bytes == 4)
        transpose<std::uint32_t>(shape, kv_b, k_b);
    else
        transpose<std::uint16_t>(shape, kv_b, k_b);
}

KvbDifference compare_kv_b(const KvbShape& s, const float* kv_b, const float* k_b, const float* v_b) {
    KvbDifference worst;
    const auto consider = [&](const Norms& norms, std::int64_t head, const char* part) {
        const double relative = norms.relative();
        if (!(relative <= worst.relative)) worst = {relative, head, part};  // NaN is worst
    };
    for (std::int64_t h = 0; h < s.heads; ++h) {
        const float* head = kv_b + h * (s.nope + s.v) * s.latent;
        Norms keys, values;
        for (std::int64_t n = 0; n < s.nope; ++n)
            for (std::int64_t l = 0; l < s.latent; ++l)
                keys.add(head[n * s.latent + l], k_b[(h * s.latent + l) * s.nope + n]);
        for (std::int64_t i = 0; i < s.v * s.latent; ++i)
            values.add(head[s.nope * s.latent + i], v_b[h * s.v * s.latent + i]);
        consider(keys, h, "keys");
        consider(values, h, "values");
        if (std::isnan(worst.relative)) break;
    }
    return worst;
}

double kv_b_bound(std::string_view kv_b, std::string_view k_b, std::string_view v_b) {
    const bool is_plain = element_bytes_of(kv_b) != 0 && element_bytes_of(k_b) != 0 && element_bytes_of(v_b) != 0;
    return is_plain ? 1e-2 : 0.5;
}

// ---- KvbReader ----------------------------------------------------------------------------------

void KvbReader::copy(void* dst, const void* src, std::uint64_t bytes) const {
    if (device_.api().copy(device_.self(), dst, src, bytes, stream_.get()) != ASSAY_OK)
        throw base::AssayError{"device plugin \"" + device_.id() + "\": copying " + std::to_string(bytes) +
                               " bytes failed"};
    stream_.sync();
}

std::vector<std::byte> KvbReader::stored(const FileTensor& tensor) const {
    std::vector<std::byte> bytes(tensor.bytes);
    file_.read(tensor, 0, tensor.bytes, bytes.data());
    return bytes;
}

plugin::Buffer KvbReader::uploaded(const std::vector<std::byte>& bytes) const {
    plugin::Buffer buffer = device_.alloc(bytes.size());
    copy(buffer.data(), bytes.data(), bytes.size());
    return buffer;
}

std::vector<float> KvbReader::widened(const Source& source, std::int64_t rows, std::int64_t cols) const {
    const plugin::Buffer bytes = uploaded(stored(source.tensor));
    std::vector<std::int32_t> host_ids(static_cast<std::size_t>(rows));
    std::iota(host_ids.begin(), host_ids.end(), 0);
    const plugin::Buffer ids = device_.alloc(host_ids.size() * sizeof(std::int32_t));
    copy(ids.data(), host_ids.data(), ids.bytes());

    assay_weight weight{};
    weight.size = sizeof weight;
    weight.format = source.tensor.format.c_str();
    weight.layout = ASSAY_LAYOUT_STORED;
    weight.experts = 1;
    weight.rows = rows;
    weight.cols = cols;
    weight.data = bytes.data();
    weight.data_bytes = bytes.bytes();
    std::vector<float> out(static_cast<std::size_t>(rows * cols));
    const plugin::Buffer floats = device_.alloc(out.size() * sizeof(float));
    const assay_tensor view = sdk::make_tensor(floats.data(), ASSAY_F32, rows, cols);
    assay_error err = sdk::make_error();
    if (source.quant.api().rows(source.quant.self(), &weight, ids.as<std::int32_t>(), rows, &view, stream_.get(),
                                &err) != ASSAY_OK)
        throw base::AssayError{"plugin \"" + source.quant.id() + "\": tensor \"" + source.tensor.name +
                               "\": " + plugin::words(err)};
    stream_.sync();
    copy(out.data(), floats.data(), floats.bytes());
    return out;
}

plugin::Buffer KvbReader::keys(const FileTensor& kv_b, const plugin::Quant& quant) {
    ++num_split_;
    const std::size_t element = element_bytes_of(kv_b.format);
    const auto count = static_cast<std::size_t>(shape_.heads * shape_.latent * shape_.nope);
    std::vector<std::byte> keys(count * (element != 0 ? element : sizeof(float)));
    if (element != 0) {
        transpose_keys(shape_, element, stored(kv_b).data(), keys.data());
    } else {
        const std::vector<float> rows = widened({kv_b, quant}, shape_.rows(), shape_.latent);
        transpose_keys(shape_, sizeof(float), reinterpret_cast<const std::byte*>(rows.data()), keys.data());
    }
    return uploaded(keys);
}

void KvbReader::check(const Source& kv_b, const Source& k_b, const Source& v_b) {
    const auto whole = widened(kv_b, shape_.rows(), shape_.latent);
    const auto keys = widened(k_b, shape_.heads * shape_.latent, shape_.nope);
    const auto values = widened(v_b, shape_.heads * shape_.v, shape_.latent);
    const KvbDifference worst = compare_kv_b(shape_, whole.data(), keys.data(), values.data());
    const double bound = kv_b_bound(kv_b.tensor.format, k_b.tensor.format, v_b.tensor.format);
    if (!(worst.relative <= bound))
        throw base::ModelError{"tensor \"" + kv_b.tensor.name + "\" is not what \"" + k_b.tensor.name + "\" and \"" +
                               v_b.tensor.name + "\" are made of: the " + worst.part + " of head " +
                               std::to_string(worst.head) + " differ by " + std::to_string(worst.relative) +
                               " of their size, expected at most " + std::to_string(bound)};
    ++num_checked_;
    worst_ = std::max(worst_, worst.relative);
}

std::vector<std::string> KvbReader::notes() const {
    std::vector<std::string> lines;
    char text[32];
    std::snprintf(text, sizeof text, "%.2g", worst_);
    if (num_checked_ > 0)
        lines.push_back("attn_kv_b of " + std::to_string(num_checked_) +
                        " layers compared with attn_k_b and attn_v_b: a head differs by at most " + text +
                        " of its size");
    if (num_split_ > 0)
        lines.push_back("attn_kv_b of " + std::to_string(num_split_) +
                        " layers split: keys transposed (quantized ones widened to f32), values as stored");
    return lines;
}

}  // namespace model
