#include "manifest_rules.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tfexport/errors.h"

namespace tfexport {

namespace {

/// Which ending the graphs' files have in each format.
constexpr std::pair<std::string_view, std::string_view> kGraphEndings[] = {
    {"onnx", ".onnx"},        {"ort", ".ort"},  {"single", ".onnx"},    {"torchscript", ".pt"},
    {"torch-export", ".pt2"}, {"aoti", ".pt2"}, {"executorch", ".pte"},
};

bool ends_with(std::string_view text, std::string_view ending) {
    return text.size() >= ending.size() && text.substr(text.size() - ending.size()) == ending;
}

std::string lower(std::string text) {
    for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    return text;
}

/// The roles of the graphs, and that every file with a role is there and has the ending of its format.
void check_graphs(const Manifest& m, Problems& problems) {
    const bool single = m.graph_format == "single";
    const std::set<std::string> wanted =
        single ? std::set<std::string>{"search"} : std::set<std::string>{"decoder", "encoder"};
    std::set<std::string> found;
    std::vector<std::pair<std::string, std::string>> roles{{"source.tokenizer.file", m.source.file},
                                                           {"target.tokenizer.file", m.target.file}};
    for (const auto& [name, graph] : m.graphs) {
        found.insert(name);
        roles.emplace_back("graphs." + name + ".file", graph.file);
    }
    for (std::size_t i = 0; i < m.weights.size(); ++i) {
        roles.emplace_back("weights[" + std::to_string(i) + "]", m.weights[i]);
    }
    if (found != wanted) {
        problems.push_back("graphs of format " + m.graph_format + " must be " +
                           (single ? "search" : "decoder and encoder"));
    }
    for (const auto& [role, name] : roles) {
        if (m.files.count(name) == 0) {
            problems.push_back(std::string(role).append(" ").append(name).append(" is not listed in files"));
        }
    }
    const auto* format = std::find_if(std::begin(kGraphEndings), std::end(kGraphEndings),
                                      [&](const auto& known) { return known.first == m.graph_format; });
    for (const auto& [name, graph] : m.graphs) {
        if (ends_with(graph.file, format->second)) continue;
        problems.push_back("graphs." + name + ".file " + graph.file + " must end with " + std::string(format->second) +
                           ", as of format " + m.graph_format);
    }
}

/// What contradicts the form of the cache whose every shape is a number.
void check_fixed(const Manifest& m, Problems& problems) {
    for (const auto& [graph, info] : m.graphs) {
        for (const auto* tensors : {&info.inputs, &info.outputs}) {
            for (const TensorInfo& tensor : *tensors) {
                if (tensor.open_axis.empty()) continue;
                problems.push_back("graphs." + graph + ": " + tensor.name + " has the axis " + tensor.open_axis +
                                   ", but cache.form is fixed: it must be a number above 0");
            }
        }
    }
    const auto check_length = [&](const char* graph, const char* name, std::size_t axis, const char* longest,
                                  std::int64_t wanted) {
        const auto found = m.graphs.find(graph);
        if (found == m.graphs.end()) return;
        for (const TensorInfo& input : found->second.inputs) {
            if (input.name != name || input.shape.size() <= axis || input.shape[axis] < 0) continue;
            if (input.shape[axis] == wanted) continue;
            problems.push_back(std::string("model.") + longest + " is " + std::to_string(wanted) + ", but " + name +
                               " of the " + graph + " has another length in its shape");
        }
    };
    check_length("encoder", "input_ids", 1, "max_source_length", m.model.max_source_length);
    check_length("decoder", "past_key_values.0.decoder.key", 2, "max_target_length", m.model.max_target_length);
}

/// The shape of an input or output of a graph.
std::vector<std::size_t> numbers(const Manifest& manifest, const char* graph, const char* name, std::size_t axes) {
    const GraphInfo& info = manifest.graphs.at(graph);
    for (const auto* tensors : {&info.inputs, &info.outputs}) {
        for (const TensorInfo& tensor : *tensors) {
            if (tensor.name == name && tensor.shape.size() == axes && tensor.open_axis.empty()) {
                return {tensor.shape.begin(), tensor.shape.end()};
            }
        }
    }
    throw BundleError(std::string(graph) + " graph: no " + name + " of " + std::to_string(axes) +
                      " axes whose sizes are numbers; export the model again");
}

}  // namespace

bool is_graph_name(std::string_view name) {
    return std::any_of(std::begin(kGraphEndings), std::end(kGraphEndings), [&](const auto& format) {
        return ends_with(name, format.second) && name.size() <= 123 + format.second.size() &&
               is_file_name(name.substr(0, name.size() - format.second.size()));
    });
}

Problems contradictions(const Manifest& m) {
    Problems problems;
    std::set<std::string> names;
    for (const auto& [name, info] : m.files) names.insert(lower(name));
    if (names.count(kManifestName) > 0) problems.emplace_back("files: bundle.json cannot list itself");
    if (names.size() != m.files.size()) problems.emplace_back("files: two names differ only in upper and lower case");
    check_graphs(m, problems);
    if (m.source.file == m.target.file && m.source.kind != m.target.kind) {
        problems.emplace_back("source and target give one tokenizer file two kinds");
    }
    const auto check_ids = [&](const char* side, const TextInfo& text, std::int64_t size) {
        const std::pair<const char*, std::int64_t> ids[] = {
            {"pad_id", text.pad_id}, {"start_id", text.start_id}, {"eos_id", text.eos_id}, {"unk_id", text.unk_id}};
        for (const auto& [name, id] : ids) {
            if (id < size) continue;
            problems.push_back(std::string(side) + "." + name + " " + std::to_string(id) +
                               " is outside the vocabulary of " + std::to_string(size));
        }
    };
    check_ids("source", m.source, m.model.source_vocab_size);
    check_ids("target", m.target, m.model.target_vocab_size);
    const auto check_list = [&](const char* name, const Ids& ids, std::int64_t size) {
        if (std::all_of(ids.begin(), ids.end(), [&](std::int64_t id) { return id < size; })) return;
        problems.push_back(std::string(name) + " holds ids outside the vocabulary of " + std::to_string(size));
    };
    check_list("source.prefix_ids", m.source.prefix_ids, m.model.source_vocab_size);
    check_list("source.suffix_ids", m.source.suffix_ids, m.model.source_vocab_size);
    check_list("target.prefix_ids", m.target.prefix_ids, m.model.target_vocab_size);
    check_list("target.never_generated", m.target.never_generated, m.model.target_vocab_size);
    if (m.cache == CacheForm::fixed) check_fixed(m, problems);
    const Ids& never = m.target.never_generated;
    if (std::find(never.begin(), never.end(), m.target.eos_id) != never.end()) {
        problems.emplace_back("target.never_generated holds eos_id, so nothing could end");
    }
    return problems;
}

FixedShape fixed_shape(const Manifest& manifest) {
    const auto layer = numbers(manifest, "decoder", "past_key_values.0.decoder.key", 4);
    FixedShape sizes;
    sizes.rows = layer[0];
    sizes.heads = layer[1];
    sizes.target = layer[2];
    sizes.head_size = layer[3];
    sizes.source = numbers(manifest, "encoder", "input_ids", 2)[1];
    sizes.candidates = numbers(manifest, "decoder", "candidate_scores", 2)[1];
    return sizes;
}

}  // namespace tfexport
