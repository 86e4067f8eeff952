#include "daemon/plugin/refusal.hpp"

#include <algorithm>

namespace plugin {

base::ConfigError refusal(const std::string& key, const std::string& requirement,
                          const std::vector<Rejected>& candidates,
                          const std::vector<std::string>& able, const std::string& kind,
                          const std::string& found, const std::string& remedy) {
    std::string text = key + ": nothing configured serves " + requirement + ": ";
    if (candidates.empty()) text += "the list is empty";
    for (std::size_t i = 0; i < candidates.size(); ++i)
        text += (i > 0 ? "; " : "") + candidates[i].id + ": " + candidates[i].reason;
    for (const Rejected& candidate : candidates)
        for (const std::string& line : candidate.detail)
            text += "\n  " + candidate.id + ": " + line;
    text += "\nfound:";
    for (std::size_t at = 0; at < found.size();) {
        const std::size_t end = std::min(found.find('\n', at), found.size());
        text += "\n  " + found.substr(at, end - at);
        at = end + 1;
    }
    if (!remedy.empty()) {
        text += "\nwhat to do: " + remedy;
    } else if (able.empty()) {
        text += "\nwhat to do: install a plugin of kind " + kind +
                " that serves it into a folder of plugins.folders and name it in " + key;
    } else {
        text += "\nwhat to do: set " + key + " = [";
        for (std::size_t i = 0; i < able.size(); ++i)
            text += (i > 0 ? ", \"" : "\"") + able[i] + '"';
        text += "]: installed and able, but not configured";
    }
    return base::ConfigError{text};
}

}  // namespace plugin
