#include "daemon/plugin/resolve.hpp"

#include "daemon/plugin/boundary.hpp"
#include "daemon/plugin/refusal.hpp"
#include "daemon/plugin/resolve_attention.hpp"
#include "sdk/cxx/plugin.hpp"

#include <algorithm>

namespace plugin {
namespace {

const Options& options_of(const Requirements& requirements, const std::string& id) {
    static const Options kNone;
    const auto it = requirements.options.find(id);
    return it == requirements.options.end() ? kNone : it->second;
}

// ---- device ---------------------------------------------------------------------------------

std::shared_ptr<Device> open_one_device(Registry& registry, const Requirements& requirements,
                                        const std::string& id, Plan& plan) {
    const auto module = open_or_explain(registry, id, ASSAY_KIND_DEVICE);
    const auto* const table = module->table<assay_device>();
    std::int32_t count = 0;
    assay_error err = sdk::make_error();
    const assay_status status = table->count(&count, &err);
    if (status != ASSAY_OK || requirements.device_ordinal >= count)
        throw base::ConfigError{"device " + std::to_string(requirements.device_ordinal) +
                                " wanted, " + std::to_string(count) + " present" +
                                (*words(err) != '\0' ? std::string{" ("} + words(err) + ')' : "")};
    auto device = std::make_shared<Device>(module->source(), table, requirements.device_ordinal,
                                           options_of(requirements, id));
    plan.device = choice_of(*module, "");
    const assay_device_ref& ref = device->ref();
    plan.device_name = std::string{table->kind} + ' ' + std::to_string(ref.ordinal) + ", " +
                       std::string{ref.name, strnlen(ref.name, sizeof ref.name)};
    plan.device_arch = ref.arch;
    return device;
}

std::vector<std::string> others(const Registry& registry, const char* kind,
                                const std::vector<std::string>& configured) {
    std::vector<std::string> ids = registry.ids(kind);
    std::erase_if(ids, [&](const std::string& id) {
        return std::find(configured.begin(), configured.end(), id) != configured.end();
    });
    return ids;
}

// ---- quant ----------------------------------------------------------------------------------

// The configured quant plugins, each created on the device or with the reason why not.
class QuantPlugins {
public:
    QuantPlugins(Registry& registry, const Requirements& requirements, const Device& device)
        : registry_{registry}, requirements_{requirements}, device_{device} {}

    struct Entry {
        std::shared_ptr<Quant> instance;
        Choice choice;
        std::string problem;
    };

    const Entry& entry(const std::string& id) {
        const auto it = entries_.find(id);
        if (it != entries_.end()) return it->second;
        Entry made;
        try {
            const auto module = open_or_explain(registry_, id, ASSAY_KIND_QUANT);
            made.instance = std::make_shared<Quant>(module->source(), module->table<assay_quant>(),
                                                    device_, options_of(requirements_, id));
            made.choice = choice_of(*module, made.instance->tier());
        } catch (const base::StartError& e) {
            made.problem = e.what();
        }
        return entries_.emplace(id, std::move(made)).first->second;
    }

    // Empty reason: the plugin serves every need of the format.
    Rejected judge(const std::string& id, const std::string& format) {
        Rejected verdict{.id = id, .reason = {}};
        const Entry& plugin = entry(id);
        if (!plugin.problem.empty()) {
            verdict.reason = plugin.problem;
            return verdict;
        }
        if (plugin.instance->format(format) == nullptr) {
            verdict.reason = "has no format " + format;
            return verdict;
        }
        for (const QuantNeed& need : requirements_.quant_needs) {
            if (need.format != format) continue;
            assay_quant_query query = need.query;
            query.size = sizeof query;
            query.format = need.format.c_str();
            const std::string why = plugin.instance->unsupported_reason(query);
            if (why.empty()) continue;
            if (verdict.reason.empty()) verdict.reason = need.label + ": " + why;
            verdict.detail.push_back(need.label + ": " + why);
        }
        return verdict;
    }

private:
    Registry& registry_;
    const Requirements& requirements_;
    const Device& device_;
    std::map<std::string, Entry, std::less<>> entries_;
};

std::vector<std::string> formats_of(const Requirements& requirements) {
    std::vector<std::string> formats;
    for (const QuantNeed& need : requirements.quant_needs)
        if (std::find(formats.begin(), formats.end(), need.format) == formats.end())
            formats.push_back(need.format);
    return formats;
}

const std::string& first_label(const Requirements& requirements, const std::string& format) {
    return std::find_if(requirements.quant_needs.begin(), requirements.quant_needs.end(),
                        [&](const QuantNeed& need) { return need.format == format; })
        ->label;
}

void resolve_quant(Registry& registry, const Requirements& requirements, Resolution& out) {
    QuantPlugins plugins{registry, requirements, *out.device};
    for (const std::string& format : formats_of(requirements)) {
        std::vector<Rejected> rejected;
        std::string chosen;
        for (const std::string& id : requirements.quant) {
            Rejected verdict = plugins.judge(id, format);
            if (verdict.reason.empty()) {
                chosen = id;
                break;
            }
            rejected.push_back(std::move(verdict));
        }
        if (chosen.empty()) {
            std::vector<std::string> able;
            for (const std::string& id : others(registry, ASSAY_KIND_QUANT, requirements.quant))
                if (plugins.judge(id, format).reason.empty()) able.push_back(id);
            if (!able.empty())  // a list keeps what already works for other formats
                able.insert(able.begin(), requirements.quant.begin(), requirements.quant.end());
            throw refusal(
                "backends.quant",
                "weight format " + format + " (" + first_label(requirements, format) + ')',
                rejected, able, ASSAY_KIND_QUANT, registry.summary(ASSAY_KIND_QUANT));
        }
        for (const Rejected& other : rejected)
            out.plan.passed_over.push_back({"quant " + format, other.id, other.reason});
        out.plan.format[format] = chosen;
        if (out.quant.contains(chosen)) continue;
        const QuantPlugins::Entry& plugin = plugins.entry(chosen);
        out.quant[chosen] = plugin.instance;
        out.plan.quant.push_back(plugin.choice);
        if (!options_of(requirements, chosen).empty())
            out.plan.options[chosen] = options_of(requirements, chosen);
    }
}

}  // namespace

std::shared_ptr<Module> open_or_explain(Registry& registry, const std::string& id,
                                        const char* kind) {
    if (registry.find(id, kind) == nullptr)
        throw base::ConfigError{registry.absent_reason(id, kind)};
    return registry.open(id, kind);
}

Choice choice_of(const Module& module, const std::string& tier) {
    return {module.id(),     module.version(),       module.build_id(),
            module.sha256(), module.path().string(), tier};
}

std::shared_ptr<Device> open_device(Registry& registry, const Requirements& requirements,
                                    Plan& plan) {
    std::vector<Rejected> rejected;
    const auto try_one = [&](const std::string& id, Plan& into) -> std::shared_ptr<Device> {
        try {
            return open_one_device(registry, requirements, id, into);
        } catch (const base::StartError& e) {
            rejected.push_back({.id = id, .reason = e.what()});
            return nullptr;
        }
    };
    for (const std::string& id : requirements.device) {
        auto device = try_one(id, plan);
        if (device == nullptr) continue;
        for (const Rejected& other : rejected)
            plan.passed_over.push_back({"device", other.id, other.reason});
        if (!options_of(requirements, id).empty()) plan.options[id] = options_of(requirements, id);
        return device;
    }
    const std::vector<Rejected> configured = rejected;
    std::vector<std::string> able;
    Plan unused;
    for (const std::string& id : others(registry, ASSAY_KIND_DEVICE, requirements.device))
        if (try_one(id, unused) != nullptr) able.push_back(id);
    throw refusal("backends.device", "device " + std::to_string(requirements.device_ordinal),
                  configured, able, ASSAY_KIND_DEVICE, registry.summary(ASSAY_KIND_DEVICE));
}

Resolution resolve(Registry& registry, const Requirements& requirements) {
    Resolution out;
    out.device = open_device(registry, requirements, out.plan);
    resolve_attention(registry, requirements, out);
    resolve_quant(registry, requirements, out);
    for (const Choice* choice : {&out.plan.prefill, &out.plan.decode})
        if (!choice->id.empty() && !options_of(requirements, choice->id).empty())
            out.plan.options[choice->id] = options_of(requirements, choice->id);
    return out;
}

}  // namespace plugin
