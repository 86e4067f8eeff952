#include "daemon/plugin/elf_reader.hpp"

#include "abi/plugin.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <elf.h>
#include <limits>
#include <optional>

namespace plugin {
namespace {

constexpr std::string_view kEntryName = "assay_module_entry";
constexpr std::array<std::string_view, 4> kKnownKinds{ASSAY_KIND_LOADER, ASSAY_KIND_DEVICE,
                                                      ASSAY_KIND_QUANT, ASSAY_KIND_ATTENTION};

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
constexpr std::string_view kMachineName = "x86-64";
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
constexpr std::string_view kMachineName = "AArch64";
#else
#error "name this machine for the image reader"
#endif

using Bytes = std::span<const std::byte>;

// What stops reading; becomes ImageFacts::problem. Never leaves this file.
struct Problem {
    std::string text;
};

std::string hex(std::uint64_t value) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
    return text;
}

// The bytes [offset, offset + size) when they lie inside, otherwise nothing.
std::optional<Bytes> slice(Bytes bytes, std::uint64_t offset, std::uint64_t size) noexcept {
    if (offset > bytes.size() || size > bytes.size() - offset) return std::nullopt;
    return bytes.subspan(offset, size);
}

// A struct of the file at an offset, copied, since nothing promises alignment.
template <class T>
std::optional<T> load(Bytes bytes, std::uint64_t offset) noexcept {
    const auto part = slice(bytes, offset, sizeof(T));
    if (!part) return std::nullopt;
    T value;
    std::memcpy(&value, part->data(), sizeof value);
    return value;
}

class Image {
public:
    explicit Image(Bytes file) : file_{file} {
        read_header();
        read_segments();
        read_dynamic();
    }

    [[nodiscard]] std::string build_id() const;
    // Bytes of the symbol, and how many the image exports altogether.
    [[nodiscard]] Bytes entry(std::size_t& num_exported) const;

private:
    void read_header();
    void read_segments();
    void read_dynamic();
    [[nodiscard]] std::uint32_t num_symbols() const;
    [[nodiscard]] std::optional<std::uint32_t> num_gnu_symbols() const;
    // The file's bytes from an address to the end of its segment; empty when not of the file.
    [[nodiscard]] Bytes from_address(std::uint64_t address) const noexcept;
    [[nodiscard]] bool is_entry_name(std::uint32_t offset) const noexcept;

    template <class Visit>
    void for_each_segment(std::uint32_t type, Visit&& visit) const {
        for (std::uint32_t i = 0; i < header_.e_phnum; ++i) {
            const auto segment = load<Elf64_Phdr>(segments_, i * sizeof(Elf64_Phdr));
            if (segment && segment->p_type == type && !visit(*segment)) return;
        }
    }

    Bytes file_, segments_, symbols_, strings_;
    Elf64_Ehdr header_{};
    std::uint64_t hash_ = 0, gnu_hash_ = 0;  // addresses; 0 = absent
};

void Image::read_header() {
    const auto magic = slice(file_, 0, SELFMAG);
    if (!magic || std::memcmp(magic->data(), ELFMAG, SELFMAG) != 0)
        throw Problem{"not an ELF file; a plugin is a shared object"};
    const auto header = load<Elf64_Ehdr>(file_, 0);
    if (!header)
        throw Problem{"ELF header cut off: the file has " + std::to_string(file_.size()) +
                      " bytes; copy it again"};
    header_ = *header;
    if (header_.e_ident[EI_CLASS] != ELFCLASS64) throw Problem{"32-bit ELF file, want 64-bit"};
    if (header_.e_ident[EI_DATA] != ELFDATA2LSB)
        throw Problem{"big-endian ELF file, want little-endian"};
    if (header_.e_machine != kMachine)
        throw Problem{"built for ELF machine " + std::to_string(header_.e_machine) +
                      ", this host is " + std::string{kMachineName} + " (machine " +
                      std::to_string(kMachine) + ")"};
    if (header_.e_type != ET_DYN)
        throw Problem{"ELF type " + std::to_string(header_.e_type) +
                      ", want a shared object (type " + std::to_string(ET_DYN) + ")"};
}

void Image::read_segments() {
    if (header_.e_phentsize != sizeof(Elf64_Phdr))
        throw Problem{"program header entries of " + std::to_string(header_.e_phentsize) +
                      " bytes, want " + std::to_string(sizeof(Elf64_Phdr))};
    const std::uint64_t size = std::uint64_t{header_.e_phnum} * sizeof(Elf64_Phdr);
    const auto table = slice(file_, header_.e_phoff, size);
    if (!table)
        throw Problem{"program headers end at byte " + hex(header_.e_phoff) + " + " +
                      std::to_string(size) + ", file has " + std::to_string(file_.size()) +
                      "; copy it again"};
    segments_ = *table;
    for_each_segment(PT_LOAD, [this](const Elf64_Phdr& segment) {
        if (!slice(file_, segment.p_offset, segment.p_filesz))
            throw Problem{"a segment ends at byte " + hex(segment.p_offset) + " + " +
                          std::to_string(segment.p_filesz) + ", file has " +
                          std::to_string(file_.size()) + "; copy it again"};
        return true;
    });
}

Bytes Image::from_address(std::uint64_t address) const noexcept {
    Bytes found;
    for_each_segment(PT_LOAD, [&](const Elf64_Phdr& segment) {
        if (address < segment.p_vaddr || address - segment.p_vaddr >= segment.p_filesz) return true;
        const std::uint64_t skip = address - segment.p_vaddr;
        if (const auto part = slice(file_, segment.p_offset, segment.p_filesz))
            found = part->subspan(skip);
        return false;
    });
    return found;
}

void Image::read_dynamic() {
    Bytes table;
    for_each_segment(PT_DYNAMIC, [&](const Elf64_Phdr& segment) {
        if (const auto part = slice(file_, segment.p_offset, segment.p_filesz)) table = *part;
        return false;
    });
    std::uint64_t symtab = 0, strtab = 0, strsz = 0, syment = sizeof(Elf64_Sym);
    for (std::uint64_t at = 0;; at += sizeof(Elf64_Dyn)) {
        const auto entry = load<Elf64_Dyn>(table, at);
        if (!entry || entry->d_tag == DT_NULL) break;
        switch (entry->d_tag) {
            case DT_SYMTAB:
                symtab = entry->d_un.d_ptr;
                break;
            case DT_STRTAB:
                strtab = entry->d_un.d_ptr;
                break;
            case DT_STRSZ:
                strsz = entry->d_un.d_val;
                break;
            case DT_SYMENT:
                syment = entry->d_un.d_val;
                break;
            case DT_HASH:
                hash_ = entry->d_un.d_ptr;
                break;
            case DT_GNU_HASH:
                gnu_hash_ = entry->d_un.d_ptr;
                break;
            default:
                break;
        }
    }
    if (symtab == 0 || strtab == 0 || (hash_ == 0 && gnu_hash_ == 0))
        throw Problem{"no dynamic symbol table, so no symbol " + std::string{kEntryName}};
    if (syment != sizeof(Elf64_Sym))
        throw Problem{"dynamic symbols of " + std::to_string(syment) + " bytes, want " +
                      std::to_string(sizeof(Elf64_Sym))};
    symbols_ = from_address(symtab);
    const auto strings = slice(from_address(strtab), 0, strsz);
    if (symbols_.empty() || !strings)
        throw Problem{"dynamic symbol table at " + hex(symtab) + " or its strings at " +
                      hex(strtab) + " lie outside the file"};
    strings_ = *strings;
}

// Source: the layout that ld writes: nbuckets, symoffset, bloom_size, bloom_shift; bloom words of 8
// bytes; buckets; one chain word per symbol from symoffset on, whose low bit ends a chain.
std::optional<std::uint32_t> Image::num_gnu_symbols() const {
    const Bytes table = from_address(gnu_hash_);
    const auto head = load<std::array<std::uint32_t, 4>>(table, 0);
    if (!head) return std::nullopt;
    const auto [num_buckets, first, bloom_words, shift] = *head;
    const std::uint64_t buckets = 16 + std::uint64_t{bloom_words} * 8;
    const std::uint64_t chains = buckets + std::uint64_t{num_buckets} * 4;
    if (!slice(table, buckets, std::uint64_t{num_buckets} * 4)) return std::nullopt;
    std::uint32_t last = 0;
    for (std::uint64_t i = 0; i < num_buckets; ++i)
        last = std::max(last, *load<std::uint32_t>(table, buckets + i * 4));
    if (last == 0) return first;  // every bucket is empty
    if (last < first) return std::nullopt;
    for (std::uint64_t i = last;; ++i) {
        const auto word = load<std::uint32_t>(table, chains + (i - first) * 4);
        if (!word || i == std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
        if ((*word & 1) != 0) return static_cast<std::uint32_t>(i + 1);
    }
}

std::uint32_t Image::num_symbols() const {
    std::optional<std::uint32_t> count;
    if (hash_ != 0) {  // nbucket, nchain: the latter is the number of symbols
        count = load<std::uint32_t>(from_address(hash_), 4);
    } else {
        count = num_gnu_symbols();
    }
    if (!count || std::uint64_t{*count} * sizeof(Elf64_Sym) > symbols_.size())
        throw Problem{"the symbol hash table contradicts the file's size; copy it again"};
    return *count;
}

bool Image::is_entry_name(std::uint32_t offset) const noexcept {
    const auto name = slice(strings_, offset, kEntryName.size() + 1);  // with its null
    return name && std::memcmp(name->data(), kEntryName.data(), kEntryName.size()) == 0 &&
           name->back() == std::byte{0};
}

Bytes Image::entry(std::size_t& num_exported) const {
    std::optional<Elf64_Sym> found;
    num_exported = 0;
    const std::uint32_t count = num_symbols();
    for (std::uint64_t i = 1; i < count; ++i) {
        const auto symbol = load<Elf64_Sym>(symbols_, i * sizeof(Elf64_Sym));
        if (!symbol || symbol->st_shndx == SHN_UNDEF) continue;
        if (ELF64_ST_BIND(symbol->st_info) == STB_LOCAL) continue;
        const auto visibility = ELF64_ST_VISIBILITY(symbol->st_other);
        if (visibility != STV_DEFAULT && visibility != STV_PROTECTED) continue;
        ++num_exported;
        if (!found && is_entry_name(symbol->st_name)) found = symbol;
    }
    const std::string name{kEntryName};
    if (!found)
        throw Problem{"exports no symbol " + name + " (" + std::to_string(num_exported) +
                      " others); not an assay plugin, or built without ASSAY_EXPORT"};
    if (ELF64_ST_TYPE(found->st_info) != STT_OBJECT)
        throw Problem{name + " is not a data object (symbol type " +
                      std::to_string(ELF64_ST_TYPE(found->st_info)) + "); it must be a constant"};
    const auto bytes = slice(from_address(found->st_value), 0, found->st_size);
    if (!bytes)
        throw Problem{name + " (" + std::to_string(found->st_size) + " bytes at " +
                      hex(found->st_value) + ") has no bytes in the file; it must be initialised"};
    return *bytes;
}

std::string Image::build_id() const {
    std::string id;
    for_each_segment(PT_NOTE, [&](const Elf64_Phdr& segment) {
        const auto notes = slice(file_, segment.p_offset, segment.p_filesz);
        for (std::uint64_t at = 0; notes && id.empty();) {
            const auto note = load<Elf64_Nhdr>(*notes, at);
            if (!note) break;
            const auto padded = [](std::uint64_t n) { return (n + 3) / 4 * 4; };
            const std::uint64_t desc = at + sizeof *note + padded(note->n_namesz);
            const auto name = slice(*notes, at + sizeof *note, note->n_namesz);
            const auto value = slice(*notes, desc, note->n_descsz);
            if (!name || !value) break;
            if (note->n_type == NT_GNU_BUILD_ID && name->size() == 4 &&
                std::memcmp(name->data(), "GNU", 4) == 0 && value->size() <= 64) {
                for (const std::byte byte : *value) {
                    char text[3];
                    std::snprintf(text, sizeof text, "%02x", std::to_integer<unsigned>(byte));
                    id += text;
                }
            }
            at = desc + padded(note->n_descsz);
        }
        return id.empty();
    });
    return id;
}

// ---- the constant -------------------------------------------------------------------------

// One in-line string of the constant, checked: terminated, and printable on a terminal.
template <std::size_t N>
std::string text_field(const char (&field)[N], std::string_view name) {
    const char* end = std::find(field, field + N, '\0');
    if (end == field + N)
        throw Problem{"string `" + std::string{name} + "` is not terminated within its " +
                      std::to_string(N) + " bytes"};
    for (const char* c = field; c != end; ++c)
        if (*c < 0x20 || *c > 0x7e)
            throw Problem{"string `" + std::string{name} + "` holds byte " +
                          hex(static_cast<unsigned char>(*c)) + ", want printable ASCII"};
    return {field, end};
}

std::vector<std::string> split_kinds(std::string_view text) {
    std::vector<std::string> kinds;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(' '), text.size());
        if (end > 0) kinds.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return kinds;
}

void read_strings(const assay_module& module, ImageFacts& facts) {
    facts.id = text_field(module.id, "id");
    facts.version = text_field(module.version, "version");
    facts.vendor = text_field(module.vendor, "vendor");
    facts.build = text_field(module.build, "build");
    facts.kinds = split_kinds(text_field(module.kinds, "kinds"));
}

void check_names(const ImageFacts& facts) {
    const auto is_id_char = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    };
    if (facts.id.empty() || !std::all_of(facts.id.begin(), facts.id.end(), is_id_char))
        throw Problem{"id \"" + facts.id + "\", want lower-case letters, digits, '-', '_', '.'"};
    if (facts.version.empty()) throw Problem{"version is empty"};
    if (facts.kinds.empty()) throw Problem{"names no kind"};
    std::string list;
    bool any_known = false;
    for (const std::string& kind : facts.kinds) {
        if (std::count(facts.kinds.begin(), facts.kinds.end(), kind) > 1)
            throw Problem{"names kind \"" + kind + "\" twice"};
        any_known = any_known || is_known_kind(kind);
        list += (list.empty() ? "" : " ") + kind;
    }
    if (!any_known) {
        std::string known;
        for (const std::string_view kind : kKnownKinds)
            known += (known.empty() ? "" : ", ") + std::string{kind};
        throw Problem{"offers unknown kinds alone (" + list + "); this daemon knows " + known};
    }
}

void read_module(Bytes bytes, ImageFacts& facts) {
    constexpr std::size_t kHead = offsetof(assay_module, id);
    if (bytes.size() < kHead)
        throw Problem{std::string{kEntryName} + " has " + std::to_string(bytes.size()) +
                      " bytes, want " + std::to_string(sizeof(assay_module))};
    assay_module module{};
    std::memcpy(&module, bytes.data(), std::min(bytes.size(), sizeof module));
    if (module.magic != ASSAY_MAGIC)
        throw Problem{"magic " + hex(module.magic) + ", want " + hex(ASSAY_MAGIC)};
    facts.abi_major = module.abi_major;
    facts.abi_minor = module.abi_minor;
    const bool same_major = module.abi_major == ASSAY_ABI_MAJOR;
    if (!same_major || (ASSAY_ABI_MAJOR == 0 && module.abi_minor != ASSAY_ABI_MINOR)) {
        // The id stands at the same place in every version, so a refusal can name the plugin.
        try {
            facts.id = text_field(module.id, "id");
        } catch (const Problem&) {
            facts.id.clear();
        }
        throw Problem{"built against plugin ABI " + std::to_string(module.abi_major) + "." +
                      std::to_string(module.abi_minor) + ", this daemon has " +
                      std::to_string(ASSAY_ABI_MAJOR) + "." + std::to_string(ASSAY_ABI_MINOR) +
                      "; rebuild the plugin against this daemon's SDK"};
    }
    if (std::min<std::size_t>(module.size, bytes.size()) < sizeof module)
        throw Problem{std::string{kEntryName} + " says " + std::to_string(module.size) +
                      " bytes and has " + std::to_string(bytes.size()) + ", want " +
                      std::to_string(sizeof module)};
    read_strings(module, facts);
    check_names(facts);
}

}  // namespace

bool is_known_kind(std::string_view kind) noexcept {
    return std::find(kKnownKinds.begin(), kKnownKinds.end(), kind) != kKnownKinds.end();
}

std::string_view kind_name(std::string_view kind) noexcept {
    return kind.substr(0, kind.find('/'));
}

ImageFacts read_image(std::span<const std::byte> file) {
    ImageFacts facts;
    try {
        const Image image{file};
        facts.build_id = image.build_id();
        read_module(image.entry(facts.num_exported), facts);
        if (facts.num_exported != 1)
            throw Problem{"exports " + std::to_string(facts.num_exported) + " symbols, want " +
                          std::string{kEntryName} +
                          " alone; link it with the SDK's plugin.map, or images could bind to "
                          "each other's data"};
    } catch (const Problem& problem) {
        facts.problem = problem.text;
    }
    return facts;
}

}  // namespace plugin
