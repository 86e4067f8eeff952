#include "parse.hpp"

#include "text.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

namespace gguf {
namespace {

constexpr std::uint64_t kHeaderBytes = 24;
constexpr std::uint64_t kMinKvBytes = 14;      // length, one key byte, type, one value byte
constexpr std::uint64_t kMinTensorBytes = 24;  // length, n_dims, type, offset
constexpr std::uint64_t kMaxKeyBytes = 65535;
constexpr std::uint64_t kMaxNameBytes = 63;
constexpr std::uint64_t kReserve = 4096;  // entries reserved before any of them has been read

constexpr const char* kTruncated = "; the file is truncated or damaged: copy or download it again";

std::string num(std::uint64_t n) {
    return std::to_string(n);
}

class Parser {
public:
    Parser(std::span<const std::byte> file, std::string_view name, const Limits& limits)
        : bytes_{reinterpret_cast<const char*>(file.data()), file.size()},
          name_{name},
          limits_{limits} {}

    Header parse() {
        read_preamble();
        read_metadata();
        index_keys();
        read_alignment();
        read_tensor_infos();
        check_names_unique();
        place_tensors();
        check_no_overlap();
        return std::move(header_);
    }

private:
    // ---- failures: file, subject, byte offset, words -------------------------------------

    [[noreturn]] void fail(std::uint64_t offset, const std::string& words) const {
        refuse(name_, subject_text() + "at byte " + num(offset) + ": " + words);
    }

    [[nodiscard]] std::string subject_text() const {
        switch (subject_) {
            case Subject::header:
                return "header ";
            case Subject::kv:
                return "metadata entry " + num(index_) + " ";
            case Subject::key:
                return "key " + quoted(subject_name_) + " ";
            case Subject::info:
                return "tensor info " + num(index_) + " ";
            case Subject::tensor:
                return "tensor " + quoted(subject_name_) + " ";
        }
        return {};
    }

    void about_key(const KeyValue& kv) {
        subject_ = Subject::key;
        subject_name_ = kv.key;
    }
    void about_tensor(const TensorInfo& tensor) {
        subject_ = Subject::tensor;
        subject_name_ = tensor.name;
    }

    // ---- reading: every length is compared with what is left before it is used ------------

    [[nodiscard]] std::uint64_t left() const noexcept { return bytes_.size() - pos_; }

    std::string_view take(std::uint64_t n, const char* what) {
        if (n > left())
            fail(pos_, std::string{"file ends inside the "} + what + ": expected " + num(n) +
                           " bytes, found " + num(left()) + kTruncated);
        const std::string_view taken = bytes_.substr(pos_, n);
        pos_ += n;
        if (pos_ > limits_.max_header_bytes)
            fail(pos_, "header too long: expected at most " + num(limits_.max_header_bytes) +
                           " bytes of metadata and tensor infos");
        return taken;
    }

    template <class T>
    T read(const char* what) {
        T value;
        std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
        return value;
    }

    std::string_view read_string(const char* what, std::uint64_t max_bytes) {
        const std::uint64_t at = pos_;
        const auto length = read<std::uint64_t>(what);
        if (length > max_bytes)
            fail(at, std::string{what} + " too long: expected at most " + num(max_bytes) +
                         " bytes, found a length of " + num(length));
        return take(length, what);
    }

    void read_preamble();
    std::uint64_t read_count(const char* what, std::uint64_t entry_bytes, std::uint64_t max_count);
    void read_metadata();
    void check_key(const KeyValue& kv) const;
    void read_value(KeyValue& kv);
    void read_array(KeyValue& kv);
    void check_bools(const KeyValue& kv) const;
    void index_keys();
    void read_alignment();
    void read_tensor_infos();
    void read_shape(TensorInfo& tensor);
    void read_type_and_size(TensorInfo& tensor);
    void check_names_unique();
    void place_tensors();
    void check_no_overlap();

    enum class Subject { header, kv, key, info, tensor };

    std::string_view bytes_;
    std::string_view name_;
    const Limits& limits_;
    std::uint64_t pos_ = 0;
    std::uint64_t num_kv_ = 0;
    std::uint64_t num_tensors_ = 0;
    std::uint64_t padded_total_ = 0;
    Subject subject_ = Subject::header;
    std::string_view subject_name_;
    std::uint64_t index_ = 0;
    Header header_;
};

// ---- preamble ---------------------------------------------------------------------------

void Parser::read_preamble() {
    if (bytes_.size() >= 4 && bytes_.substr(0, 4) != "GGUF")
        fail(0, "wrong magic: expected \"GGUF\", found " + quoted(bytes_.substr(0, 4)) +
                    "; this is not a GGUF file");
    if (bytes_.size() < kHeaderBytes)
        fail(0, "file ends inside the header: expected at least 24 bytes, found " +
                    num(bytes_.size()) + kTruncated);
    pos_ = 4;
    header_.version = read<std::uint32_t>("version");
    if ((header_.version & 0xffff) == 0 && header_.version != 0)
        fail(4,
             "wrong endianness: the file is big-endian, expected little-endian; convert it with "
             "the byte order of this machine");
    if (header_.version != 2 && header_.version != 3)
        fail(4, "unsupported version: expected 2 or 3, found " + num(header_.version) +
                    "; convert the model again with a current tool");
    num_tensors_ = read_count("tensor count", kMinTensorBytes, limits_.max_tensors);
    num_kv_ = read_count("metadata count", kMinKvBytes, limits_.max_kv);
}

std::uint64_t Parser::read_count(const char* what, std::uint64_t entry_bytes,
                                 std::uint64_t max_count) {
    const std::uint64_t at = pos_;
    const auto count = read<std::uint64_t>(what);
    if (count > max_count)
        fail(at, std::string{what} + " too large: expected at most " + num(max_count) + ", found " +
                     num(count));
    const std::uint64_t room = (bytes_.size() - kHeaderBytes) / entry_bytes;
    if (count > room)
        fail(at, std::string{what} + " too large: the file has room for " + num(room) + ", found " +
                     num(count) + kTruncated);
    return count;
}

// ---- metadata ---------------------------------------------------------------------------

void Parser::read_metadata() {
    header_.metadata.reserve(std::min(num_kv_, kReserve));
    for (index_ = 0; index_ < num_kv_; ++index_) {
        KeyValue kv;
        subject_ = Subject::kv;
        kv.offset = pos_;
        kv.key = read_string("key", kMaxKeyBytes);
        check_key(kv);
        about_key(kv);
        read_value(kv);
        header_.metadata.push_back(kv);
    }
}

void Parser::check_key(const KeyValue& kv) const {
    if (kv.key.empty()) fail(kv.offset, "empty key: expected 1 to 65535 bytes, found 0");
    for (std::size_t i = 0; i < kv.key.size(); ++i)
        if (kv.key[i] < 0x20 || kv.key[i] > 0x7e)
            fail(kv.offset + 8 + i,
                 "invalid key: expected printable ASCII, found " + quoted(kv.key));
}

void Parser::read_value(KeyValue& kv) {
    const std::uint64_t at = pos_;
    const auto id = read<std::uint32_t>("value type");
    kv.type = kv.item_type = static_cast<ValueType>(id);
    if (id > static_cast<std::uint32_t>(ValueType::f64))
        fail(at, "unknown value type: expected an id from 0 to 12, found " + num(id));
    if (kv.type == ValueType::array) return read_array(kv);
    if (kv.type == ValueType::string) {
        kv.payload = read_string("string value", limits_.max_string_bytes);
        return;
    }
    kv.payload = take(scalar_bytes(kv.type), "value");
    check_bools(kv);
}

void Parser::read_array(KeyValue& kv) {
    const std::uint64_t at = pos_;
    const auto id = read<std::uint32_t>("array item type");
    kv.item_type = static_cast<ValueType>(id);
    if (kv.item_type == ValueType::array)
        fail(at, "nested array: expected scalar or string items, found arrays");
    if (id > static_cast<std::uint32_t>(ValueType::f64))
        fail(at, "unknown array item type: expected an id from 0 to 12, found " + num(id));
    kv.count = read<std::uint64_t>("array count");
    if (kv.count > limits_.max_array_items)
        fail(at + 4, "array too long: expected at most " + num(limits_.max_array_items) +
                         " items, found " + num(kv.count));
    const bool strings = kv.item_type == ValueType::string;
    const std::uint64_t item_bytes = strings ? 8 : scalar_bytes(kv.item_type);
    const std::uint64_t start = pos_;
    if (kv.count > left() / item_bytes)
        fail(start, "file ends inside the array: " + num(kv.count) + " items of " +
                        type_name(kv.item_type) + " need at least " + num(kv.count * item_bytes) +
                        " bytes, found " + num(left()) + kTruncated);
    if (!strings) {
        kv.payload = take(kv.count * item_bytes, "array");
        return check_bools(kv);
    }
    for (std::uint64_t i = 0; i < kv.count; ++i)
        (void)read_string("string of an array", limits_.max_string_bytes);
    kv.payload = bytes_.substr(start, pos_ - start);
}

void Parser::check_bools(const KeyValue& kv) const {
    if (kv.item_type != ValueType::boolean) return;
    const auto bad = std::find_if(kv.payload.begin(), kv.payload.end(),
                                  [](char c) { return static_cast<unsigned char>(c) > 1; });
    if (bad != kv.payload.end())
        fail(static_cast<std::uint64_t>(&*bad - bytes_.data()),
             "invalid bool: expected 0 or 1, found " + num(static_cast<unsigned char>(*bad)));
}

// Sorting rather than hashing: the cost has no worst case that a file could be written for.
void Parser::index_keys() {
    std::vector<std::uint32_t>& order = header_.by_key;
    order.resize(header_.metadata.size());
    std::iota(order.begin(), order.end(), 0u);
    const auto& kvs = header_.metadata;
    std::sort(order.begin(), order.end(), [&kvs](std::uint32_t a, std::uint32_t b) {
        const int c = kvs[a].key.compare(kvs[b].key);
        return c != 0 ? c < 0 : a < b;
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
        const KeyValue &first = kvs[order[i - 1]], &second = kvs[order[i]];
        if (first.key != second.key) continue;
        about_key(second);
        fail(second.offset, "duplicate key: already present at byte " + num(first.offset));
    }
}

void Parser::read_alignment() {
    const KeyValue* kv = header_.find("general.alignment");
    if (kv == nullptr) return;
    about_key(*kv);
    if (kv->type != ValueType::u32)
        fail(kv->offset,
             std::string{"wrong type of alignment: expected u32, found "} + type_name(kv->type));
    const auto value = static_cast<std::uint64_t>(*int_item(*kv));
    if (value < 8 || value > limits_.max_alignment || (value & (value - 1)) != 0)
        fail(kv->offset, "bad alignment: expected a power of two from 8 to " +
                             num(limits_.max_alignment) + ", found " + num(value));
    header_.alignment = static_cast<std::uint32_t>(value);
}

// ---- tensor infos -----------------------------------------------------------------------

void Parser::read_tensor_infos() {
    header_.tensors.reserve(std::min(num_tensors_, kReserve));
    for (index_ = 0; index_ < num_tensors_; ++index_) {
        TensorInfo tensor;
        subject_ = Subject::info;
        tensor.info_offset = pos_;
        tensor.name = read_string("tensor name", kMaxNameBytes);
        if (tensor.name.empty())
            fail(tensor.info_offset, "empty tensor name: expected 1 to 63 bytes");
        if (tensor.name.find('\0') != std::string_view::npos || !is_utf8(tensor.name))
            fail(tensor.info_offset,
                 "invalid tensor name: expected UTF-8 without NUL, found " + quoted(tensor.name));
        about_tensor(tensor);
        read_shape(tensor);
        read_type_and_size(tensor);
        tensor.offset = read<std::uint64_t>("tensor offset");
        header_.tensors.push_back(tensor);
    }
}

void Parser::read_shape(TensorInfo& tensor) {
    const std::uint64_t at = pos_;
    tensor.rank = read<std::uint32_t>("number of dimensions");
    if (tensor.rank > tensor.ne.size())
        fail(at, "too many dimensions: expected at most 4, found " + num(tensor.rank));
    std::uint64_t elements = 1;
    for (std::uint32_t d = 0; d < tensor.rank; ++d) {
        const std::uint64_t dim_at = pos_;
        const auto dim = read<std::uint64_t>("dimension");
        if (dim == 0)
            fail(dim_at, "zero dimension: expected at least 1, found 0 as dimension " + num(d));
        if (dim > static_cast<std::uint64_t>(INT64_MAX))
            fail(dim_at, "dimension too large: expected less than 2^63, found " + num(dim));
        std::uint64_t product = 0;
        if (!checked_mul(elements, dim, product) || product > static_cast<std::uint64_t>(INT64_MAX))
            fail(dim_at, "size overflow: expected fewer than 2^63 elements, found " +
                             num(elements) + " x " + num(dim));
        elements = product;
        tensor.ne[d] = dim;
    }
}

void Parser::read_type_and_size(TensorInfo& tensor) {
    const std::uint64_t at = pos_;
    const auto id = read<std::uint32_t>("tensor type");
    tensor.type = find_type(id);
    if (tensor.type == nullptr)
        fail(at, "unknown tensor type: expected a type of the format (0 to 42), found " +
                     describe_unknown_type(id) + "; convert the model to a supported type");
    const TensorType& type = *tensor.type;
    if (tensor.ne[0] % type.block_elements != 0)
        fail(at, std::string{"row is not a multiple of the block: "} + type.format +
                     " expects rows of a multiple of " + num(type.block_elements) +
                     " elements, found " + num(tensor.ne[0]));
    const std::uint64_t elements = tensor.ne[0] * tensor.ne[1] * tensor.ne[2] * tensor.ne[3];
    std::uint64_t padded = 0;
    if (!checked_mul(elements / type.block_elements, type.block_bytes, tensor.bytes) ||
        !checked_round_up(tensor.bytes, header_.alignment, padded) ||
        !checked_add(padded_total_, padded, padded_total_))
        fail(at, "size overflow: the tensor's bytes do not fit 64 bits");
    if (tensor.bytes > bytes_.size())
        fail(at, "tensor is larger than the file: it takes " + num(tensor.bytes) +
                     " bytes, the file has " + num(bytes_.size()) + kTruncated);
}

void Parser::check_names_unique() {
    std::vector<const TensorInfo*> order;
    order.reserve(header_.tensors.size());
    for (const TensorInfo& tensor : header_.tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [](const TensorInfo* a, const TensorInfo* b) {
        const int c = a->name.compare(b->name);
        return c != 0 ? c < 0 : a < b;
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
        if (order[i - 1]->name != order[i]->name) continue;
        about_tensor(*order[i]);
        fail(order[i]->info_offset, "duplicate tensor: the name is already present at byte " +
                                        num(order[i - 1]->info_offset));
    }
}

// ---- data section -----------------------------------------------------------------------

/// Turns offsets relative to the data section into offsets in the file. Subtractions only.
void Parser::place_tensors() {
    subject_ = Subject::header;
    header_.data_start = pos_;
    if (header_.tensors.empty()) return;
    const bool fits = checked_round_up(pos_, header_.alignment, header_.data_start);
    if (!fits || header_.data_start > bytes_.size())
        fail(pos_, "file ends before the tensor data: expected it to begin at byte " +
                       num(header_.data_start) + ", the file has " + num(bytes_.size()) + " bytes" +
                       kTruncated);
    const std::uint64_t room = bytes_.size() - header_.data_start;
    for (TensorInfo& tensor : header_.tensors) {
        about_tensor(tensor);
        if (tensor.offset % header_.alignment != 0)
            fail(tensor.info_offset, "misaligned offset: expected a multiple of " +
                                         num(header_.alignment) + ", found " + num(tensor.offset));
        if (tensor.offset > room || tensor.bytes > room - tensor.offset)
            fail(tensor.info_offset,
                 "tensor reaches past the end of the file: expected offset + size <= " + num(room) +
                     " bytes of data, found " + num(tensor.offset) + " + " + num(tensor.bytes) +
                     kTruncated);
        tensor.offset += header_.data_start;
    }
}

void Parser::check_no_overlap() {
    std::vector<const TensorInfo*> order;
    order.reserve(header_.tensors.size());
    for (const TensorInfo& tensor : header_.tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [](const TensorInfo* a, const TensorInfo* b) {
        return a->offset != b->offset ? a->offset < b->offset : a < b;
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
        const TensorInfo &before = *order[i - 1], &after = *order[i];
        const std::uint64_t end = before.offset + before.bytes;  // inside the file: cannot wrap
        if (after.offset >= end) continue;
        about_tensor(after);
        fail(after.info_offset, "overlap: its data begins at byte " + num(after.offset) +
                                    ", inside tensor " + quoted(before.name) + ", which ends at " +
                                    num(end));
    }
}

}  // namespace

Header parse_header(std::span<const std::byte> file, std::string_view name, const Limits& limits) {
    return Parser{file, name, limits}.parse();
}

}  // namespace gguf
