// sdk/example as a plugin author has it: copied with the SDK into a folder of its own, configured
// and built there, its symbols counted, and each image asked to do its job and to refuse what is
// not.

#include "cxx/plugin.hpp"
#include "reference/attention.hpp"
#include "tests/support/lanes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

namespace fs = std::filesystem;

/// A folder that is gone when the test is over.
class TemporaryFolder {
public:
    TemporaryFolder() {
        std::string pattern = (fs::temp_directory_path() / "assay-example-XXXXXX").string();
        if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error{"mkdtemp: " + pattern};
        path_ = pattern;
    }
    ~TemporaryFolder() { fs::remove_all(path_); }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    [[nodiscard]] const fs::path& path() const { return path_; }

private:
    fs::path path_;
};

struct Finished {
    int status;
    std::string output;
};

Finished shell(const std::string& command) {
    Finished f{-1, {}};
    FILE* pipe = popen((command + " 2>&1").c_str(), "r");
    if (pipe == nullptr) return f;
    char buffer[4096];
    for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
        f.output.append(buffer, n);
    const int status = pclose(pipe);
    f.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return f;
}

/// The table of `kind` in an image, opened like a host opens it.
template <class Table>
const Table* open_image(const fs::path& image, const char* id, const char* kind) {
    void* handle = dlopen(image.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        ADD_FAILURE() << dlerror();
        return nullptr;
    }
    const auto* module = static_cast<const assay_module*>(dlsym(handle, "assay_module_entry"));
    EXPECT_EQ(module->magic, ASSAY_MAGIC);
    EXPECT_EQ(module->abi_minor, ASSAY_ABI_MINOR);
    EXPECT_STREQ(module->id, id);
    EXPECT_STREQ(module->kinds, kind);
    EXPECT_EQ(module->open(nullptr, nullptr), ASSAY_OK);
    EXPECT_EQ(module->query("nothing/1"), nullptr);
    return static_cast<const Table*>(module->query(kind));
}

assay_device_ref cpu_ref() {
    assay_device_ref ref{};
    ref.size = sizeof ref;
    ref.kind = "cpu";
    ref.num_units = 1;
    return ref;
}

void write(const fs::path& path, const std::string& bytes) {
    std::ofstream{path, std::ios::binary}.write(bytes.data(),
                                                static_cast<std::streamsize>(bytes.size()));
}

std::string matrix_bytes(std::uint32_t rows, std::uint32_t cols, const std::vector<float>& values) {
    std::string bytes = "ASSAYMAT";
    bytes.append(reinterpret_cast<const char*>(&rows), 4);
    bytes.append(reinterpret_cast<const char*>(&cols), 4);
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    return bytes;
}

void try_loader(const fs::path& folder) {
    SCOPED_TRACE("loader");
    const auto* loader =
        open_image<assay_loader>(folder / "example-loader.so", "example-loader", ASSAY_KIND_LOADER);
    ASSERT_NE(loader, nullptr);
    const std::string path = (folder / "m.assaymat").string();
    const std::vector<float> values{1, 2, 3, 4, 5, 6};
    const std::string good = matrix_bytes(2, 3, values);
    write(path, good);
    const assay_load_config config{sizeof config, nullptr, 0};
    assay_error err = sdk::make_error();
    void* handle = nullptr;
    EXPECT_EQ(loader->probe(path.c_str()), 100);
    ASSERT_EQ(loader->open(nullptr, &config, path.c_str(), &handle, &err), ASSAY_OK) << err.text;
    assay_tensor_info info{};
    ASSERT_EQ(loader->tensor(handle, 0, &info), ASSAY_OK);
    EXPECT_EQ(info.shape[0], 2);
    EXPECT_EQ(info.shape[1], 3);
    std::vector<float> got(6);
    ASSERT_EQ(loader->read(handle, info.file, info.offset, info.bytes, got.data(), &err), ASSAY_OK);
    EXPECT_EQ(got, values);
    EXPECT_EQ(loader->read(handle, 0, info.offset + 1, info.bytes, got.data(), &err),
              ASSAY_INVALID);
    assay_meta meta{};
    ASSERT_EQ(loader->meta(handle, 0, &meta), ASSAY_OK);
    EXPECT_STREQ(meta.key, "general.architecture");
    loader->close(handle);

    // Hostile files: every prefix, and headers that lie.
    std::vector<std::string> bad;
    for (std::size_t n = 0; n < good.size(); ++n) bad.push_back(good.substr(0, n));
    bad.push_back(good + "x");
    bad.push_back(matrix_bytes(3, 3, values));
    bad.push_back(matrix_bytes(0, 0, {}));
    bad.push_back(matrix_bytes(0xffffffffu, 0xffffffffu, values));
    bad.push_back(matrix_bytes(0x40000000u, 4, values));  // 2^32 elements, 0 bytes in 32 bits
    for (const std::string& bytes : bad) {
        write(path, bytes);
        EXPECT_EQ(loader->open(nullptr, &config, path.c_str(), &handle, &err), ASSAY_CORRUPT)
            << bytes.size();
        EXPECT_NE(std::string{err.text}.find("m.assaymat"), std::string::npos) << err.text;
    }
    EXPECT_EQ(loader->probe((folder / "absent").c_str()), 0);
    EXPECT_EQ(loader->open(nullptr, &config, (folder / "absent").c_str(), &handle, &err), ASSAY_IO);
}

void try_quant(const fs::path& folder) {
    SCOPED_TRACE("quant");
    const auto* quant =
        open_image<assay_quant>(folder / "example-quant.so", "example-quant", ASSAY_KIND_QUANT);
    ASSERT_NE(quant, nullptr);
    const assay_device_ref ref = cpu_ref();
    const assay_quant_config config{sizeof config, &ref, nullptr, 0};
    void* self = nullptr;
    char tier[32];
    ASSERT_EQ(quant->create(nullptr, &config, &self, tier, nullptr), ASSAY_OK);

    constexpr std::int64_t kRows = 5, kCols = 64, kTokens = 3;
    std::mt19937_64 rng{std::random_device{}()};
    std::normal_distribution<float> normal;
    std::vector<unsigned char> stored;
    std::vector<float> dense;
    for (std::int64_t block = 0; block < kRows * kCols / 32; ++block) {
        const float scale = normal(rng);
        unsigned char bytes[36];
        std::memcpy(bytes, &scale, 4);
        for (int i = 0; i < 32; ++i) {
            bytes[4 + i] = static_cast<unsigned char>(rng());
            dense.push_back(scale * static_cast<float>(static_cast<std::int8_t>(bytes[4 + i])));
        }
        stored.insert(stored.end(), bytes, bytes + 36);
    }
    assay_weight w{sizeof w, "example_i8",  ASSAY_LAYOUT_STORED, 1, kRows,
                   kCols,    stored.data(), stored.size(),       {}};
    support::TestLanes lanes{2};
    const assay_stream stream{&ref, nullptr, lanes.get()};

    const std::int32_t ids[] = {4, 0, 5, -1};
    std::vector<float> rows(4 * kCols, NAN);
    const assay_tensor to = sdk::make_tensor(rows.data(), ASSAY_F32, 4, kCols);
    ASSERT_EQ(quant->rows(self, &w, ids, 4, &to, &stream, nullptr), ASSAY_OK);
    for (std::size_t i = 0; i < kCols; ++i) {
        EXPECT_EQ(rows[i], dense[4 * kCols + i]);
        EXPECT_EQ(rows[kCols + i], dense[i]);
        EXPECT_TRUE(std::isnan(rows[2 * kCols + i]) && std::isnan(rows[3 * kCols + i]));
    }

    std::vector<float> x(kTokens * kCols), y(kTokens * kRows, NAN);
    for (float& v : x) v = normal(rng);
    assay_matmul mm{};
    mm.size = sizeof mm;
    mm.num_weights = 1;
    mm.w[0] = &w;
    mm.x = sdk::make_tensor(x.data(), ASSAY_F32, kTokens, kCols);
    mm.y[0] = sdk::make_tensor(y.data(), ASSAY_F32, kTokens, kRows);
    ASSERT_EQ(quant->matmul(self, &mm, &stream, nullptr), ASSAY_OK);
    for (std::size_t m = 0; m < kTokens; ++m)
        for (std::size_t n = 0; n < kRows; ++n) {
            double want = 0;
            for (std::size_t k = 0; k < kCols; ++k)
                want += double{x[m * kCols + k]} * double{dense[n * kCols + k]};
            EXPECT_NEAR(y[m * kRows + n], want, 1e-6 * (1 + std::abs(want)));
        }
    assay_error why = sdk::make_error();
    assay_quant_query query{sizeof query,
                            ASSAY_Q_MATMUL,
                            "example_i8",
                            ASSAY_F32,
                            ASSAY_F32,
                            1,
                            ASSAY_GLU_NONE,
                            0,
                            false,
                            4,
                            5,
                            64,
                            1};
    EXPECT_EQ(quant->supports(self, &query, &why), ASSAY_CORRECT);
    query.op = ASSAY_Q_GROUPED;
    EXPECT_EQ(quant->supports(self, &query, &why), ASSAY_NONE);
    EXPECT_STRNE(why.text, "");
    quant->destroy(self);
}

void try_attention(const fs::path& folder) {
    SCOPED_TRACE("attention");
    const auto* attention = open_image<assay_attention>(folder / "example-attention.so",
                                                        "example-attention", ASSAY_KIND_ATTENTION);
    ASSERT_NE(attention, nullptr);
    for (std::uint32_t i = 0; i < attention->num_caps; ++i) {
        const assay_attn_cap& cap = *attention->caps[i];
        EXPECT_EQ(cap.phases & cap.phases_absent, 0u);
        EXPECT_EQ(cap.phases | cap.phases_absent, 7u);
        EXPECT_NE(cap.absent_reason, nullptr);
    }
    const assay_device_ref ref = cpu_ref();
    const assay_attn_config config{sizeof config, &ref, ASSAY_F32, ASSAY_DTYPE_NONE, 4, nullptr, 0};
    constexpr std::int64_t kHeads = 4, kKvHeads = 2, kDim = 8, kVDim = 6, kTokens = 11;
    assay_attn_layer layer{};
    layer.size = sizeof layer;
    layer.attn_class = ASSAY_ATTN_GQA;
    layer.num_q_heads = kHeads;
    layer.num_kv_heads = kKvHeads;
    layer.head_dim = kDim;
    layer.v_head_dim = kVDim;
    layer.softmax_scale = 0.3f;
    assay_error why = sdk::make_error();
    EXPECT_EQ(attention->check(&config, &layer, ASSAY_PREFILL, &why), ASSAY_OK) << why.text;
    EXPECT_EQ(attention->check(&config, &layer, ASSAY_MIXED, &why), ASSAY_UNSUPPORTED);
    assay_attn_layer windowed = layer;
    windowed.window = 8;
    EXPECT_EQ(attention->check(&config, &windowed, ASSAY_DECODE, &why), ASSAY_UNSUPPORTED);
    EXPECT_NE(std::string{why.text}.find("window"), std::string::npos) << why.text;

    assay_kv_layout layout{};
    ASSERT_EQ(attention->kv_layout(&config, &layer, &layout, &why), ASSAY_OK);
    EXPECT_EQ(layout.page_tokens, 4u);
    ASSERT_EQ(layout.num_planes, 2u);
    const assay_attn_layer* layers[] = {&layer};
    void* self = nullptr;
    char tier[32];
    ASSERT_EQ(attention->create(nullptr, &config, layers, 1, &self, tier, &why), ASSAY_OK);

    std::mt19937_64 rng{std::random_device{}()};
    std::normal_distribution<float> normal;
    const auto normals = [&](std::int64_t n) {
        std::vector<float> v(static_cast<std::size_t>(n));
        for (float& f : v) f = normal(rng);
        return v;
    };
    const std::vector<float> q = normals(kTokens * kHeads * kDim),
                             k = normals(kTokens * kKvHeads * kDim),
                             v = normals(kTokens * kKvHeads * kVDim);
    std::vector<float> k_pages(5 * 4 * kKvHeads * kDim, NAN),
        v_pages(5 * 4 * kKvHeads * kVDim, NAN);
    std::vector<float> out(kTokens * kHeads * kVDim, NAN), lse(kTokens * kHeads, NAN);
    // Pages 3, 0 and 4 of five, in two calls: a prefill of 10 tokens and a decode of one.
    const std::int32_t blocks[] = {3, 0, 4};
    std::int32_t slots[kTokens];
    for (std::int32_t t = 0; t < kTokens; ++t) slots[t] = blocks[t / 4] * 4 + t % 4;
    support::TestLanes lanes{3};
    const assay_stream stream{&ref, nullptr, lanes.get()};
    for (const auto& [first, end] : {std::pair{0, 10}, {10, 11}}) {
        const std::int32_t cu_q[] = {first, end}, kv_len[] = {end};
        const std::int32_t num_tokens = end - first;
        assay_attn_batch batch{sizeof batch,
                               1,
                               num_tokens == 1 ? 1 : 0,
                               num_tokens,
                               num_tokens,
                               end,
                               3,
                               cu_q,
                               kv_len,
                               blocks,
                               slots,
                               cu_q,
                               kv_len};
        assay_attn_args args{};
        args.size = sizeof args;
        args.batch = &batch;
        args.phase = num_tokens == 1 ? ASSAY_DECODE : ASSAY_PREFILL;
        args.planes[0] = k_pages.data();
        args.planes[1] = v_pages.data();
        args.q = sdk::make_tensor(q.data(), ASSAY_F32, kTokens, kHeads, kDim);
        args.k = sdk::make_tensor(k.data(), ASSAY_F32, kTokens, kKvHeads, kDim);
        args.v = sdk::make_tensor(v.data(), ASSAY_F32, kTokens, kKvHeads, kVDim);
        args.out = sdk::make_tensor(out.data(), ASSAY_F32, kTokens, kHeads, kVDim);
        args.lse = sdk::make_tensor(lse.data(), ASSAY_F32, kTokens, kHeads);
        ASSERT_EQ(attention->append(self, 0, &args, &stream, nullptr), ASSAY_OK);
        ASSERT_EQ(attention->run(self, 0, &args, &stream, nullptr), ASSAY_OK);
    }
    std::vector<float> want(out.size()), want_lse(lse.size());
    sdk::reference::Softmax softmax;
    softmax.scale = 0.3f;
    sdk::reference::gqa_attention(q.data(), k.data(), v.data(), kTokens, kTokens, kHeads, kKvHeads,
                                  kDim, kVDim, softmax, want.data(), want_lse.data());
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], want[i], 2e-6f) << i;
    for (std::size_t i = 0; i < lse.size(); ++i) EXPECT_NEAR(lse[i], want_lse[i], 2e-6f) << i;

    const std::int32_t wanted[] = {slots[7], -1};
    std::vector<float> read(2 * kKvHeads * kVDim, NAN);
    void* planes[ASSAY_MAX_PLANES] = {k_pages.data(), v_pages.data()};
    const assay_tensor to = sdk::make_tensor(read.data(), ASSAY_F32, 2, kKvHeads * kVDim);
    ASSERT_EQ(attention->kv_read(self, 0, 1, planes, wanted, 2, &to, &stream, nullptr), ASSAY_OK);
    for (std::size_t i = 0; i < kKvHeads * kVDim; ++i) {
        EXPECT_EQ(read[i], v[7 * kKvHeads * kVDim + i]);
        EXPECT_EQ(read[kKvHeads * kVDim + i], 0);
    }
    attention->destroy(self);
}

void try_device(const fs::path& folder) {
    SCOPED_TRACE("device");
    const auto* device =
        open_image<assay_device>(folder / "example-device.so", "example-device", ASSAY_KIND_DEVICE);
    ASSERT_NE(device, nullptr);
    const assay_device_config config{sizeof config, 0, nullptr, 0};
    void* self = nullptr;
    assay_device_ref ref{};
    ASSERT_EQ(device->open(nullptr, &config, &self, &ref, nullptr), ASSAY_OK);
    void* memory = nullptr;
    ASSERT_EQ(device->alloc(self, ASSAY_SPACE_DEVICE, 24, &memory, nullptr), ASSAY_OK);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0u);
    support::TestLanes lanes;
    assay_stream stream{};
    ASSERT_EQ(device->stream_create(self, 0, lanes.get(), &stream, nullptr), ASSAY_OK);
    const float values[] = {1, 2, 3, 4, 5, 6};
    ASSERT_EQ(device->copy(self, memory, values, sizeof values, &stream), ASSAY_OK);
    const assay_tensor t = sdk::make_tensor(memory, ASSAY_F32, 2, 3);
    ASSERT_EQ(device->ops->add(self, &t, &t, 10.0f, &t, &stream), ASSAY_OK);
    ASSERT_EQ(device->ops->scale(self, &t, 2.0f, &t, &stream), ASSAY_OK);
    EXPECT_EQ(static_cast<const float*>(memory)[5], 132.0f);
    assay_error why = sdk::make_error();
    EXPECT_EQ(device->ops->supports(self, ASSAY_OP_ADD, ASSAY_F32, &why), ASSAY_OK);
    EXPECT_EQ(device->ops->supports(self, ASSAY_OP_ROPE, ASSAY_F32, &why), ASSAY_UNSUPPORTED);
    EXPECT_STRNE(why.text, "");
    device->free(self, ASSAY_SPACE_DEVICE, memory);
    device->stream_destroy(self, &stream);
    device->close(self);
}

// One test, since each would have to build the images again.
TEST(Example, BuildsOutOfTreeExportsOneSymbolAndWorks) {
    const TemporaryFolder folder;
    const fs::path sdk = folder.path() / "sdk", build = folder.path() / "build";
    fs::copy(fs::path{ASSAY_SOURCE_DIR} / "sdk", sdk, fs::copy_options::recursive);
    fs::remove_all(sdk / "reference");  // an author needs the headers alone

    const Finished configured = shell(std::string{CONFIGURE_COMMAND} + " -S " +
                                      (sdk / "example").string() + " -B " + build.string());
    ASSERT_EQ(configured.status, 0) << configured.output;
    const Finished built = shell(std::string{BUILD_COMMAND} + " " + build.string());
    ASSERT_EQ(built.status, 0) << built.output;
    EXPECT_EQ(built.output.find("warning"), std::string::npos) << built.output;

    for (const char* kind : {"loader", "quant", "attention", "device"}) {
        const std::string image = (build / ("example-" + std::string{kind} + ".so")).string();
        const Finished symbols = shell("nm -D --defined-only " + image);
        ASSERT_EQ(symbols.status, 0) << symbols.output;
        EXPECT_TRUE(symbols.output.ends_with(" D assay_module_entry\n")) << symbols.output;
        EXPECT_EQ(std::count(symbols.output.begin(), symbols.output.end(), '\n'), 1)
            << symbols.output;
    }
    try_loader(build);
    try_quant(build);
    try_attention(build);
    try_device(build);
}

}  // namespace
