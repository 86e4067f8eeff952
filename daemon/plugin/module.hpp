#pragma once

#include "abi/plugin.h"
#include "daemon/plugin/elf_reader.hpp"
#include "daemon/plugin/host.hpp"
#include "daemon/plugin/instance.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace plugin {

/// The interface id of a kind's table: kKindOf<assay_quant> is "quant/1".
template <class Table>
inline constexpr const char* kKindOf = nullptr;
template <>
inline constexpr const char* kKindOf<assay_loader> = ASSAY_KIND_LOADER;
template <>
inline constexpr const char* kKindOf<assay_device> = ASSAY_KIND_DEVICE;
template <>
inline constexpr const char* kKindOf<assay_quant> = ASSAY_KIND_QUANT;
template <>
inline constexpr const char* kKindOf<assay_attention> = ASSAY_KIND_ATTENTION;

/// One image, mapped and open. Shared by every instance, buffer and graph made from it, and by
/// whoever opened it; close() runs when the last of them is gone. The code stays mapped for the
/// life of the process.
///
/// Thread: control; the tables are used as the ABI's brackets say.
class Module : public std::enable_shared_from_this<Module> {
public:
    /// The module of these bytes: mapped at the first call in this process, opened when nobody has
    /// it open, shared otherwise. Two files with equal content are one image.
    ///
    /// @param path    absolute, symbolic links resolved
    /// @param sha256  of the file as it is now
    /// @throws base::ConfigError with the linker's or the plugin's words, or when this process has
    ///         mapped other bytes from the same path
    [[nodiscard]] static std::shared_ptr<Module> open(const std::filesystem::path& path,
                                                      const std::string& sha256,
                                                      const ImageFacts& facts,
                                                      const HostServices& services);
    ~Module();
    Module(const Module&) = delete;
    Module& operator=(const Module&) = delete;

    [[nodiscard]] const std::string& id() const noexcept { return facts_.id; }
    [[nodiscard]] const std::string& version() const noexcept { return facts_.version; }
    [[nodiscard]] const std::string& build() const noexcept { return facts_.build; }
    /// The GNU build id, or the first 16 digits of the file's SHA-256 where there is none.
    [[nodiscard]] std::string build_id() const;
    [[nodiscard]] const std::string& sha256() const noexcept { return sha256_; }
    [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
    [[nodiscard]] const ImageFacts& facts() const noexcept { return facts_; }

    [[nodiscard]] const assay_module* entry() const noexcept { return entry_; }
    [[nodiscard]] const assay_host* host() const noexcept { return host_.abi(); }
    [[nodiscard]] const Host& host_object() const noexcept { return host_; }

    /// The table of a kind, or null when the image does not have it.
    template <class Table>
    [[nodiscard]] const Table* table() const {
        return static_cast<const Table*>(query(kKindOf<Table>));
    }
    [[nodiscard]] const void* query(const char* kind) const;

    /// What instances are made from; keeps this module alive.
    [[nodiscard]] Source source() const;

private:
    Module(std::filesystem::path path, std::string sha256, ImageFacts facts,
           const HostServices& services);

    std::filesystem::path path_;
    std::string sha256_;
    ImageFacts facts_;
    Host host_;
    const assay_module* entry_ = nullptr;
};

/// Said of a file that was replaced after this process mapped it.
inline constexpr const char* kReplacedAdvice =
    "the file was replaced after this process mapped it, and the dynamic linker would answer with "
    "the "
    "old code; install the new build under a new file name, and remove this one";

/// Images that this process keeps mapped, retired ones included.
[[nodiscard]] std::size_t num_mapped_images();

/// The SHA-256 of the bytes that this process mapped from `path`, or empty when it mapped nothing.
[[nodiscard]] std::string mapped_sha256(const std::filesystem::path& path);

}  // namespace plugin
