#include "daemon/plugin/resolve_attention.hpp"

#include "daemon/plugin/refusal.hpp"
#include "sdk/cxx/plugin.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace plugin {
namespace {

const char* phase_name(int phase) {
    return phase == ASSAY_PREFILL ? "prefill" : phase == ASSAY_DECODE ? "decode" : "mixed";
}

// "MLA with DSA (4 heads, kv_lora_rank 64, rope 16, v 32, index_topk 64)"
std::string layer_text(const assay_attn_layer& l) {
    const auto n = [](int value) { return std::to_string(value); };
    std::string text;
    if (l.attn_class == ASSAY_ATTN_GQA) {
        text = "GQA (" + n(l.num_q_heads) + " query and " + n(l.num_kv_heads) +
               " key heads, head_dim " + n(l.head_dim);
        if (l.v_head_dim != l.head_dim) text += ", v_head_dim " + n(l.v_head_dim);
    } else {
        text = std::string{l.attn_class == ASSAY_ATTN_MLA ? "MLA (" : "MLA with DSA ("} +
               n(l.num_q_heads) + " heads, kv_lora_rank " + n(l.kv_lora_rank) + ", rope " +
               n(l.qk_rope_head_dim);
        if (l.attn_class == ASSAY_ATTN_MLA_DSA) text += ", index_topk " + n(l.index_topk);
    }
    if (l.window != 0) text += ", window " + n(l.window);
    if (l.logit_softcap != 0) text += ", soft cap";
    if (l.has_sinks) text += ", sinks";
    return text + ')';
}

std::string requirement_text(const Requirements& requirements, const Device& device, int phase) {
    std::string text;
    for (const AttentionNeed& need : requirements.attention_needs)
        text += (text.empty() ? "" : ", ") + need.label + ' ' + layer_text(need.layer);
    text = std::string{phase_name(phase)} + " of " + text + " on " + device.ref().kind + " with " +
           sdk::dtype_name(requirements.io_dtype) + " in and out";
    if (requirements.kv_dtype != ASSAY_DTYPE_NONE)
        text += std::string{", cache "} + sdk::dtype_name(requirements.kv_dtype);
    if (requirements.page_tokens != 0)
        text += ", " + std::to_string(requirements.page_tokens) + " tokens a page";
    return text;
}

bool has_row(const assay_attention& table, int attn_class, int phase) {
    for (std::uint32_t i = 0; i < table.num_caps; ++i)
        if (table.caps[i]->attn_class == attn_class &&
            (table.caps[i]->phases & static_cast<std::uint32_t>(phase)) != 0)
            return true;
    return false;
}

std::string plane_text(const assay_kv_layout& layout) {
    std::string text = std::string{layout.id, strnlen(layout.id, sizeof layout.id)} + '/' +
                       std::to_string(layout.page_tokens);
    for (std::uint32_t i = 0; i < std::min<std::uint32_t>(layout.num_planes, ASSAY_MAX_PLANES); ++i)
        text += '/' + std::to_string(layout.planes[i].bytes_per_token);
    return text;
}

// Why no cache can be made of such pages; empty when one can. The bounds are far beyond any model.
std::string plane_problem(const assay_kv_layout& layout) {
    constexpr std::uint32_t kMaxPageTokens = 1U << 16U;
    constexpr std::uint64_t kMaxBytesPerToken = 1U << 24U;
    if (layout.page_tokens > kMaxPageTokens)
        return std::to_string(layout.page_tokens) + " tokens in a page, want at most " + std::to_string(kMaxPageTokens);
    for (std::uint32_t i = 0; i < layout.num_planes; ++i) {
        const std::uint64_t bytes = layout.planes[i].bytes_per_token;
        if (layout.planes[i].width == 0) return "plane " + std::to_string(i) + " is 0 wide";
        if (bytes == 0 || bytes > kMaxBytesPerToken)
            return "plane " + std::to_string(i) + " has " + std::to_string(bytes) + " bytes a token, want 1 to " +
                   std::to_string(kMaxBytesPerToken);
    }
    return {};
}

// One configured plugin, opened once, and what it says about the layers of this model.
class Backend {
public:
    Backend(Registry& registry, const Requirements& requirements, const Device& device,
            std::string id)
        : requirements_{requirements}, id_{std::move(id)} {
        try {
            module_ = open_or_explain(registry, id_, ASSAY_KIND_ATTENTION);
            table_ = module_->table<assay_attention>();
            config_ = attention_config(requirements, id_, &device.ref(), options_);
            ask_layouts();
        } catch (const base::StartError& e) {
            problem_ = e.what();
        }
    }

    // Why it cannot serve a phase of every layer; empty reason when it can.
    [[nodiscard]] Rejected judge(int phase) {
        Rejected verdict{.id = id_, .reason = problem_};
        if (!verdict.reason.empty()) return verdict;
        for (const AttentionNeed& need : requirements_.attention_needs) {
            assay_error why = sdk::make_error();
            std::string text;
            if (table_->check(&config_, &need.layer, phase, &why) != ASSAY_OK) {
                why.text[sizeof why.text - 1] = '\0';
                text = why.text[0] != '\0' ? why.text : "unsupported, and it gives no reason";
            } else if (!has_row(*table_, need.layer.attn_class, phase)) {
                text = "check() accepts a phase that its capability table does not list";
            }
            if (text.empty()) continue;
            verdict.detail.push_back(need.label + ": " + text);
            if (verdict.reason.empty()) verdict.reason = text;
        }
        if (verdict.reason.empty()) verdict.reason = layout_problem_;
        if (verdict.reason.empty()) verdict.reason = create_problem();
        return verdict;
    }

    // Why pages written by the other cannot be read by this one; empty when they can.
    [[nodiscard]] std::string page_conflict(const Backend& writer) const {
        for (std::size_t i = 0; i < layouts_.size() && i < writer.layouts_.size(); ++i)
            if (plane_text(layouts_[i]) != plane_text(writer.layouts_[i]))
                return "its pages (" + std::string{layouts_[i].id} + ", " +
                       std::to_string(layouts_[i].page_tokens) +
                       " tokens) differ from those of prefill plugin " + writer.id_ + " (" +
                       writer.layouts_[i].id + ", " +
                       std::to_string(writer.layouts_[i].page_tokens) + " tokens) in " +
                       requirements_.attention_needs[i].label;
        return {};
    }

    // The page size that it would take where the configured one is what it refuses; 0 otherwise.
    [[nodiscard]] std::uint32_t wanted_page_tokens(int phase) const {
        if (!problem_.empty() || requirements_.page_tokens == 0) return 0;
        assay_attn_config own = config_;
        own.page_tokens = 0;
        std::uint32_t page = 0;
        for (const AttentionNeed& need : requirements_.attention_needs) {
            assay_kv_layout layout{};
            layout.size = sizeof layout;
            assay_error unused = sdk::make_error();
            if (table_->check(&own, &need.layer, phase, &unused) != ASSAY_OK ||
                table_->kv_layout(&own, &need.layer, &layout, &unused) != ASSAY_OK)
                return 0;
            page = layout.page_tokens;
        }
        return page != requirements_.page_tokens ? page : 0;
    }

    // What will run, as an instance for the layers of this model says. After judge().
    [[nodiscard]] const std::string& tier() const { return tier_; }
    [[nodiscard]] const std::string& id() const { return id_; }
    [[nodiscard]] const std::shared_ptr<Module>& module() const { return module_; }
    [[nodiscard]] const std::vector<assay_kv_layout>& layouts() const { return layouts_; }

private:
    void ask_layouts() {
        for (const AttentionNeed& need : requirements_.attention_needs) {
            assay_kv_layout layout{};
            layout.size = sizeof layout;
            assay_error err = sdk::make_error();
            const assay_status status = table_->kv_layout(&config_, &need.layer, &layout, &err);
            layout.id[sizeof layout.id - 1] = '\0';
            for (auto& plane : layout.planes) plane.name[sizeof plane.name - 1] = '\0';
            err.text[sizeof err.text - 1] = '\0';
            if (status != ASSAY_OK)
                layout_problem_ = need.label + ": no page layout: " + err.text;
            else if (layout.id[0] == '\0' || layout.page_tokens == 0 || layout.num_planes == 0 ||
                     layout.num_planes > ASSAY_MAX_PLANES)
                layout_problem_ = need.label + ": page layout \"" + layout.id + "\" has " +
                                  std::to_string(layout.page_tokens) + " tokens and " +
                                  std::to_string(layout.num_planes) + " planes";
            else if (!layouts_.empty() && layouts_.front().page_tokens != layout.page_tokens)
                layout_problem_ = need.label + ": pages of " + std::to_string(layout.page_tokens) +
                                  " tokens beside pages of " +
                                  std::to_string(layouts_.front().page_tokens);
            if (layout_problem_.empty()) {
                const std::string plane = plane_problem(layout);
                if (!plane.empty()) layout_problem_ = need.label + ": page layout \"" + layout.id + "\": " + plane;
            }
            if (!layout_problem_.empty()) return;
            layouts_.push_back(layout);
        }
    }

    // Creates an instance for these layers once, to see that it can be, and drops it.
    const std::string& create_problem() {
        if (std::exchange(tried_, true)) return create_problem_;
        std::vector<const assay_attn_layer*> layers;
        for (const AttentionNeed& need : requirements_.attention_needs)
            layers.push_back(&need.layer);
        try {
            tier_ = Attention{module_->source(), table_, config_, layers}.tier();
        } catch (const base::StartError& e) {
            create_problem_ = e.what();
        }
        return create_problem_;
    }

    const Requirements& requirements_;
    std::string id_;
    std::vector<assay_option> options_;
    assay_attn_config config_{};
    std::shared_ptr<Module> module_;
    const assay_attention* table_ = nullptr;
    std::vector<assay_kv_layout> layouts_;  // [attention_needs]
    std::string problem_, layout_problem_, create_problem_, tier_;
    bool tried_ = false;
};

class Backends {
public:
    Backends(Registry& registry, const Requirements& requirements, const Device& device)
        : registry_{registry}, requirements_{requirements}, device_{device} {}

    Backend& get(const std::string& id) {
        auto& slot = by_id_[id];
        if (slot == nullptr)
            slot = std::make_unique<Backend>(registry_, requirements_, device_, id);
        return *slot;
    }

    // Usable plugins outside the list that could take the phase, for the operator to choose from.
    std::vector<std::string> able(const std::vector<std::string>& list, int phase,
                                  const Backend* writer) {
        std::vector<std::string> out;
        for (const std::string& id : registry_.ids(ASSAY_KIND_ATTENTION)) {
            if (std::find(list.begin(), list.end(), id) != list.end()) continue;
            Backend& other = get(id);
            if (!other.judge(phase).reason.empty()) continue;
            if (writer == nullptr || other.page_conflict(*writer).empty()) out.push_back(id);
        }
        return out;
    }

private:
    Registry& registry_;
    const Requirements& requirements_;
    const Device& device_;
    std::map<std::string, std::unique_ptr<Backend>, std::less<>> by_id_;
};

struct Judged {
    std::vector<Backend*> fit;  // in the configured order
    std::vector<Rejected> rejected;
};

Judged judge_list(Backends& backends, const std::vector<std::string>& list, int phase) {
    Judged out;
    for (const std::string& id : list) {
        Rejected verdict = backends.get(id).judge(phase);
        if (verdict.reason.empty())
            out.fit.push_back(&backends.get(id));
        else
            out.rejected.push_back(std::move(verdict));
    }
    return out;
}

// "set kv.block_size = 16: …" when that is all that is in the way of one that is configured, else "".
std::string page_remedy(Backends& backends, const std::vector<std::string>& list, int phase) {
    for (const std::string& id : list)
        if (const std::uint32_t page = backends.get(id).wanted_page_tokens(phase); page != 0)
            return "set kv.block_size = " + std::to_string(page) + ": " + id + " serves this with such blocks";
    return {};
}

void note_passed_over(const Judged& judged, const std::vector<std::string>& list,
                      const std::string& chosen, const char* role, Plan& plan) {
    for (const std::string& id : list) {
        if (id == chosen) return;
        for (const Rejected& other : judged.rejected)
            if (other.id == id) plan.passed_over.push_back({role, id, other.reason});
    }
}

void fill(Backend& prefill, Backend& decode, Resolution& out) {
    out.prefill = prefill.module();
    out.decode = decode.module();
    out.plan.prefill = choice_of(*prefill.module(), prefill.tier());
    out.plan.decode =
        &prefill == &decode ? out.plan.prefill : choice_of(*decode.module(), decode.tier());
    out.plan.mixed = &prefill == &decode && prefill.judge(ASSAY_MIXED).reason.empty();
    for (const assay_kv_layout& layout : prefill.layouts())
        out.plan.kv_layouts.push_back(layout.id);
    out.plan.page_tokens = prefill.layouts().front().page_tokens;
}

}  // namespace

assay_attn_config attention_config(const Requirements& requirements, const std::string& plugin_id,
                                   const assay_device_ref* device,
                                   std::vector<assay_option>& options) {
    const auto it = requirements.options.find(plugin_id);
    options = it == requirements.options.end() ? std::vector<assay_option>{} : to_abi(it->second);
    assay_attn_config config{};
    config.size = sizeof config;
    config.device = device;
    config.io_dtype = requirements.io_dtype;
    config.kv_dtype = requirements.kv_dtype;
    config.page_tokens = requirements.page_tokens;
    config.options = options.data();
    config.num_options = static_cast<std::uint32_t>(options.size());
    return config;
}

void resolve_attention(Registry& registry, const Requirements& requirements, Resolution& out) {
    if (requirements.attention_needs.empty()) return;
    Backends backends{registry, requirements, *out.device};
    const Judged prefill = judge_list(backends, requirements.attention_prefill, ASSAY_PREFILL);
    if (prefill.fit.empty())
        throw refusal("backends.attention.prefill",
                      requirement_text(requirements, *out.device, ASSAY_PREFILL), prefill.rejected,
                      backends.able(requirements.attention_prefill, ASSAY_PREFILL, nullptr),
                      ASSAY_KIND_ATTENTION, registry.summary(ASSAY_KIND_ATTENTION),
                      page_remedy(backends, requirements.attention_prefill, ASSAY_PREFILL));
    Judged decode = judge_list(backends, requirements.attention_decode, ASSAY_DECODE);
    if (decode.fit.empty())
        throw refusal("backends.attention.decode",
                      requirement_text(requirements, *out.device, ASSAY_DECODE), decode.rejected,
                      backends.able(requirements.attention_decode, ASSAY_DECODE, prefill.fit[0]),
                      ASSAY_KIND_ATTENTION, registry.summary(ASSAY_KIND_ATTENTION),
                      page_remedy(backends, requirements.attention_decode, ASSAY_DECODE));

    // Prefill's order decides, then decode's: the first pair that shares its pages.
    std::vector<PassedOver> conflicts;
    for (Backend* writer : prefill.fit) {
        for (Backend* reader : decode.fit) {
            const std::string conflict = reader->page_conflict(*writer);
            if (!conflict.empty()) {
                conflicts.push_back({"attention.decode", reader->id(), conflict});
                continue;
            }
            note_passed_over(prefill, requirements.attention_prefill, writer->id(),
                             "attention.prefill", out.plan);
            note_passed_over(decode, requirements.attention_decode, reader->id(),
                             "attention.decode", out.plan);
            out.plan.passed_over.insert(out.plan.passed_over.end(), conflicts.begin(),
                                        conflicts.end());
            return fill(*writer, *reader, out);
        }
    }
    const Backend& writer = *prefill.fit.front();
    for (const Backend* reader : decode.fit)
        decode.rejected.push_back({.id = reader->id(), .reason = reader->page_conflict(writer)});
    throw refusal("backends.attention.decode",
                  requirement_text(requirements, *out.device, ASSAY_DECODE) +
                      " from the pages that prefill writes",
                  decode.rejected,
                  backends.able(requirements.attention_decode, ASSAY_DECODE, &writer),
                  ASSAY_KIND_ATTENTION, registry.summary(ASSAY_KIND_ATTENTION));
}

}  // namespace plugin
