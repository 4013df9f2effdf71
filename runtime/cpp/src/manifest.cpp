#include "manifest.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

#include "manifest_rules.h"
#include "options.h"
#include "strict_json.h"
#include "tfexport/errors.h"

namespace tfexport {

namespace {

constexpr std::int64_t kMaxCount = INT32_MAX;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 48;
constexpr std::size_t kMaxIds = std::size_t{1} << 20;

bool all_of(std::string_view text, const char* also, bool capitals = true) {
    return std::all_of(text.begin(), text.end(), [&](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (capitals && c >= 'A' && c <= 'Z') ||
               std::string_view(also).find(c) != std::string_view::npos;
    });
}

bool is_role(std::string_view name) { return name == "encoder" || name == "decoder" || name == "search"; }
bool is_package_name(std::string_view name) { return !name.empty() && name.size() <= 64 && all_of(name, "._-"); }
bool is_precision(std::string_view text) { return all_of(text, "_-", false); }
bool is_sha256(std::string_view text) { return text.find_first_not_of("0123456789abcdef") == std::string_view::npos; }

void check_format(const Json& values, const std::string& origin) {
    const auto format = values.is_object() ? values.find("format") : values.end();
    if (!values.is_object() || format == values.end() || *format != "tfexport-bundle") {
        throw BundleError(origin + ": not the manifest of a tfexport bundle; make one with `tfexport export`");
    }
    const auto version = values.find("format_version");
    const bool whole = version != values.end() && version->is_number_unsigned() && *version >= 1;
    if (!whole) throw BundleError(origin + ": format_version must be a whole number from 1");
    if (version->get<std::uint64_t>() > static_cast<std::uint64_t>(kFormatVersion)) {
        throw BundleError(origin + ": bundle format " + shown(*version) + " is newer than this runtime reads (" +
                          std::to_string(kFormatVersion) + "); upgrade the tfexport library");
    }
}

void read_model(ObjectReader& reader, ModelInfo& model) {
    std::string name;
    std::int64_t other = 0;
    reader.text("name", name, 0, 256);
    reader.integer("parameters", other, 1, kMaxBytes);
    reader.integer("d_model", model.d_model, 1, kMaxCount);
    reader.integer("d_ff", other, 1, kMaxCount);
    reader.integer("num_encoder_layers", other, 1, 1024);
    reader.integer("num_decoder_layers", model.num_decoder_layers, 1, 1024);
    reader.integer("num_heads", model.num_heads, 1, kMaxCount);
    reader.integer("head_size", model.head_size, 1, kMaxCount);
    reader.integer("source_vocab_size", model.source_vocab_size, 1, kMaxCount);
    reader.integer("target_vocab_size", model.target_vocab_size, 1, kMaxCount);
    reader.integer("max_source_length", model.max_source_length, 1, kMaxCount);
    reader.integer("max_target_length", model.max_target_length, 1, kMaxCount);
}

void read_text_info(ObjectReader& reader, TextInfo& info) {
    reader.object("tokenizer", [&](ObjectReader& tokenizer) {
        tokenizer.choice("kind", info.kind, {"sentencepiece", "words", "characters"});
        tokenizer.text("file", info.file, 1, 128, is_file_name);
    });
    reader.integer("pad_id", info.pad_id, 0, kMaxCount);
    reader.integer("start_id", info.start_id, 0, kMaxCount);
    reader.integer("eos_id", info.eos_id, 0, kMaxCount);
    reader.integer("unk_id", info.unk_id, 0, kMaxCount);
}

void read_axis(const Json& axis, const std::string& where, Problems& problems) {
    const bool size = axis.is_number_unsigned() && axis.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMaxCount);
    const bool name = axis.is_string() && !axis.get_ref<const std::string&>().empty() &&
                      axis.get_ref<const std::string&>().size() <= 1024;
    if (!size && !name) problems.push_back(where + " must be a size or a name, not " + shown(axis));
}

void read_tensors(ObjectReader& graph, const char* name, std::vector<TensorInfo>& tensors, Problems& problems) {
    graph.list(name, 1, 8192, [&](const Json& item, const std::string& where) {
        TensorInfo tensor;
        ObjectReader reader(item, where, problems);
        reader.text("name", tensor.name, 1, 256);
        reader.choice("type", tensor.type,
                      {"float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool"});
        reader.list("shape", 0, 16, [&](const Json& axis, const std::string& at) {
            read_axis(axis, at, problems);
            tensor.shape.push_back(axis.is_number_integer() ? axis.get<std::int64_t>() : -1);
            if (tensor.open_axis.empty() && tensor.shape.back() <= 0) tensor.open_axis = shown(axis);
        });
        reader.finish();
        tensors.push_back(std::move(tensor));
    });
}

void read_graphs(ObjectReader& reader, Manifest& m, Problems& problems) {
    if (reader.has("graph_format")) {
        reader.choice("graph_format", m.graph_format,
                      {"onnx", "ort", "single", "torchscript", "torch-export", "aoti", "executorch"});
    }
    reader.mapping("graphs", 1, 2, is_role, [&](const std::string& name, const Json& value, const std::string& where) {
        GraphInfo& graph = m.graphs[name];
        ObjectReader members(value, where, problems);
        members.text("file", graph.file, 1, 128, is_graph_name);
        read_tensors(members, "inputs", graph.inputs, problems);
        read_tensors(members, "outputs", graph.outputs, problems);
        members.finish();
    });
    reader.list("weights", 0, 256, [&](const Json& item, const std::string& where) {
        const bool fine = item.is_string() && is_file_name(item.get_ref<const std::string&>());
        if (!fine) problems.push_back(where + " must be a plain file name, not " + shown(item));
        m.weights.push_back(fine ? item.get<std::string>() : "");
    });
    std::string form;
    reader.object("cache", [&](ObjectReader& cache) { cache.choice("form", form, {"in_place", "growing", "fixed"}); });
    m.cache = form == "in_place" ? CacheForm::in_place : form == "fixed" ? CacheForm::fixed : CacheForm::growing;
}

void read_requirements(ObjectReader& reader, std::string& onnxruntime, Problems& problems) {
    reader.text("onnxruntime", onnxruntime, 0, 256);
    reader.list("domains", 0, 64, [&](const Json& item, const std::string& where) {
        if (!item.is_string() || item.get_ref<const std::string&>().size() > 1024) {
            problems.push_back(where + " must be a short string, not " + shown(item));
        }
    });
}

void read_files(ObjectReader& reader, std::map<std::string, FileInfo>& files, Problems& problems) {
    reader.mapping("files", 1, 1024, is_file_name,
                   [&](const std::string& name, const Json& value, const std::string& where) {
                       ObjectReader file(value, where, problems);
                       file.text("sha256", files[name].sha256, 64, 64, is_sha256);
                       file.integer("bytes", files[name].bytes, 0, kMaxBytes);
                       file.finish();
                   });
}

/// What people read, and what this runtime takes from the graphs themselves.
void read_descriptions(ObjectReader& reader, Problems& problems) {
    reader.mapping("producer", 1, 64, is_package_name,
                   [&](const std::string&, const Json& value, const std::string& where) {
                       if (!value.is_string() || value.get_ref<const std::string&>().empty() ||
                           value.get_ref<const std::string&>().size() > 256) {
                           problems.push_back(where + " must be a version, not " + shown(value));
                       }
                   });
    std::string text;
    std::int64_t number = 0;
    reader.text("precision", text, 1, 32, is_precision);
    reader.choice("operators", text, {"ort", "portable"});
    reader.integer("opset", number, 0, 1000);
    reader.integer("ir_version", number, 0, 1000);
    if (reader.has("digest")) reader.text("digest", text, 64, 64, is_sha256);
    if (reader.has("parity"))
        reader.mapping(
            "parity", 0, SIZE_MAX, [](std::string_view) { return true; },
            [](const std::string&, const Json&, const std::string&) {});
}

void read_members(ObjectReader& reader, Manifest& m, Problems& problems) {
    std::string text;
    std::int64_t number = 0;
    reader.text("format", text, 1, 64);
    reader.integer("format_version", number, 1, kFormatVersion);
    reader.object("model", [&](ObjectReader& model) { read_model(model, m.model); });
    reader.object("source", [&](ObjectReader& source) {
        read_text_info(source, m.source);
        source.boolean("add_bos", m.source.add_bos);
        source.boolean("add_eos", m.source.add_eos);
        for (auto [name, ids] : {std::pair{"prefix_ids", &m.source.prefix_ids}, {"suffix_ids", &m.source.suffix_ids}}) {
            if (source.has(name)) source.integers(name, *ids, kMaxIds);
        }
    });
    reader.object("target", [&](ObjectReader& target) {
        read_text_info(target, m.target);
        target.integers("never_generated", m.target.never_generated, kMaxIds);
        if (target.has("prefix_ids")) target.integers("prefix_ids", m.target.prefix_ids, kMaxIds);
    });
    read_graphs(reader, m, problems);
    reader.object("requirements", [&](ObjectReader& needs) { read_requirements(needs, m.onnxruntime, problems); });
    read_files(reader, m.files, problems);
    if (reader.has("generation")) {
        reader.object(
            "generation", [&](ObjectReader& options) { read_options(options, m.generation, true); },
            ObjectReader::Missing::allowed);
    }
    read_descriptions(reader, problems);
}

/// Features of a head in the self-attention cache, from the decoder's inputs.
std::int64_t cache_head_size(const Manifest& m) {
    const auto decoder = m.graphs.find("decoder");
    if (decoder == m.graphs.end()) return m.model.head_size;
    for (const TensorInfo& input : decoder->second.inputs) {
        if (input.name == "past_key_values.0.decoder.key" && input.shape.size() == 4 && input.shape[3] > 0)
            return input.shape[3];
    }
    return m.model.head_size;
}

void raise_all(const Problems& problems, const std::string& origin) {
    if (!problems.empty()) throw BundleError(origin + ": " + joined(problems));
}

}  // namespace

Target Manifest::search_target() const {
    return {model.target_vocab_size, target.start_id,         target.eos_id,
            target.never_generated,  model.max_target_length, target.prefix_ids};
}

Manifest read_manifest(std::string_view json, const std::string& origin) {
    if (json.size() > kMaxManifestBytes) throw BundleError(origin + ": larger than 16 MiB, not a manifest");
    const Json values = parse_json(json, origin);
    check_format(values, origin);
    Manifest manifest;
    Problems problems;
    ObjectReader reader(values, "", problems);
    read_members(reader, manifest, problems);
    reader.finish();
    raise_all(problems, origin);
    raise_all(contradictions(manifest), origin);
    manifest.model.cache_head_size = cache_head_size(manifest);
    const Problems generation = contradictions(manifest.generation, manifest.search_target());
    if (!generation.empty()) throw BundleError(origin + ": generation: " + joined(generation));
    return manifest;
}

bool is_file_name(std::string_view name) {
    return !name.empty() && name.size() <= 128 && all_of(name, "._-") && name[0] != '.' && name[0] != '-';
}

}  // namespace tfexport
