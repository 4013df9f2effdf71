#include "bundle.h"

#include <algorithm>
#include <set>
#include <system_error>

#include "external_data.h"
#include "seal.h"
#include "strict_json.h"
#include "tfexport/errors.h"

namespace tfexport {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxGraphBytes = std::int64_t{256} << 20;  // of an .onnx file: weights lie beside it
constexpr std::int64_t kMaxTokenizerBytes = std::int64_t{1} << 30;
constexpr std::size_t kShownNames = 6;  // of a long list of files, in an error message

bool is_onnx(const std::string& name) {
    std::string ending = name.size() < 5 ? "" : name.substr(name.size() - 5);
    for (char& c : ending) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    return ending == ".onnx";
}

/// Names for an error message, cut where there are many.
std::string listed(const std::vector<std::string>& names) {
    if (names.empty()) return "itself";
    std::string text;
    for (std::size_t i = 0; i < std::min(names.size(), kShownNames); ++i) text += (i > 0 ? ", " : "") + names[i];
    if (names.size() > kShownNames) text += " and " + std::to_string(names.size() - kShownNames) + " more";
    return text;
}

}  // namespace

Bundle Bundle::open(const fs::path& path, bool verify, bool weights_later) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) throw BundleError(path.u8string() + ": no such file or folder");
    if (fs::is_directory(status)) return Bundle(folder_files(path), path.u8string(), verify, weights_later);
    if (!fs::is_regular_file(status)) throw BundleError(path.u8string() + ": neither a folder nor a file");
    return Bundle(zip_files(map_file(path), path.u8string(), path), path.u8string(), verify, weights_later);
}

Bundle Bundle::from_memory(const void* zip, std::size_t size, bool verify, bool weights_later) {
    if (zip == nullptr) throw BundleError("memory: no bundle was given");
    return Bundle(zip_files({{static_cast<const char*>(zip), size}, nullptr}, "memory", {}), "memory", verify,
                  weights_later);
}

Bundle::Bundle(std::unique_ptr<Files> files, std::string origin, bool verify, bool weights_later)
    : files_(std::move(files)), origin_(std::move(origin)) {
    if (files_->sizes().count(kManifestName) == 0) {
        throw BundleError(origin_ + ": not a bundle: no " + kManifestName + " in it");
    }
    const Bytes text = files_->read(kManifestName, kMaxManifestBytes + 1);
    manifest_ = read_manifest(text.view, name(kManifestName));
    check_listing();
    check_graphs();
    if (!verify) return;
    check_seal(text.view, name(kManifestName));
    const std::vector<std::string>& weights = manifest_.weights;
    for (const auto& [file, info] : manifest_.files) {
        if (std::find(weights.begin(), weights.end(), file) == weights.end()) check_digest(file);
    }
    if (!weights_later) check_weights();
}

void Bundle::check_weights() const {
    for (const std::string& file : manifest_.weights) check_digest(file);
}

Bytes Bundle::read(const std::string& file) const {
    const auto listed = manifest_.files.find(file);
    if (listed == manifest_.files.end())
        throw BundleError(origin_ + ": holds no file " + shown(std::string_view(file)));
    const auto size = static_cast<std::uint64_t>(listed->second.bytes);
    Bytes bytes = files_->read(file, size + 1);
    if (bytes.view.size() != size) throw changed(file, size);
    return bytes;
}

Bytes Bundle::map(const std::string& file) const {
    const auto listed = manifest_.files.find(file);
    const std::optional<Place> there = place(file);
    if (listed == manifest_.files.end() || !there || there->offset != 0) return read(file);
    Bytes bytes = map_file(there->file);
    const auto size = static_cast<std::uint64_t>(listed->second.bytes);
    if (bytes.view.size() != size) throw changed(file, size);
    return bytes;
}

BundleError Bundle::changed(const std::string& file, std::uint64_t size) const {
    return BundleError(name(file) + ": changed since the bundle was opened; it had " + std::to_string(size) + " bytes");
}

Tokenizers Bundle::tokenizers() const {
    const TextInfo& source = manifest_.source;
    const TextInfo& target = manifest_.target;
    const bool shared = source.file == target.file && source.unk_id == target.unk_id;
    const auto tokens = tokenizer(source);
    const Tokenizers both{tokens, shared ? tokens : tokenizer(target)};
    const std::int64_t vocab_size = manifest_.model.target_vocab_size;
    const std::set<std::int64_t> never(manifest_.target.never_generated.begin(),
                                       manifest_.target.never_generated.end());
    for (auto id = static_cast<std::int64_t>(both.target->size()); id < vocab_size; ++id) {
        if (never.count(id) > 0) continue;
        throw BundleError(name(target.file) + ": holds " + std::to_string(both.target->size()) +
                          " tokens, the target vocabulary of the model " + std::to_string(vocab_size) +
                          ", and the manifest lets it generate ids without a token; export the model again");
    }
    return both;
}

/// Exactly the listed files, in the listed sizes.
void Bundle::check_listing() const {
    std::map<std::string, std::uint64_t> found = files_->sizes();
    found.erase(kManifestName);
    for (const auto& [file, info] : manifest_.files) {
        const auto there = found.find(file);
        if (there == found.end()) throw BundleError(origin_ + ": " + file + " missing; copy the whole bundle again");
        if (there->second != static_cast<std::uint64_t>(info.bytes)) {
            throw BundleError(name(file) + ": has " + std::to_string(there->second) + " bytes, the manifest says " +
                              std::to_string(info.bytes) + "; copy the bundle again");
        }
        found.erase(there);
    }
    if (!found.empty()) {
        throw BundleError(origin_ + ": " + shown(std::string_view(found.begin()->first)) +
                          " not part of the bundle; move it elsewhere");
    }
}

/// No ONNX graph reads a file other than the weights, wherever in it the tensor is.
void Bundle::check_graphs() const {
    for (const auto& [file, info] : manifest_.files) {
        if (!is_onnx(file)) continue;
        if (info.bytes > kMaxGraphBytes) {
            throw BundleError(name(file) + ": has " + std::to_string(info.bytes) + " bytes, a graph may have at most " +
                              std::to_string(kMaxGraphBytes));
        }
        std::set<std::string> locations;
        try {
            locations = external_locations(read(file).view);
        } catch (const BundleError& error) {
            throw BundleError(name(file) + ": " + error.what());
        }
        for (const std::string& weights : manifest_.weights) locations.erase(weights);
        if (!locations.empty()) {
            throw BundleError(name(file) + ": refused: reads " + shown(std::string_view(*locations.begin())) +
                              ", not only " + listed(manifest_.weights));
        }
    }
}

void Bundle::check_digest(const std::string& file) const {
    if (files_->sha256(file) != manifest_.files.at(file).sha256) {
        throw BundleError(name(file) + ": its content has changed (SHA-256 differs); copy the bundle again");
    }
}

std::shared_ptr<const Tokenizer> Bundle::tokenizer(const TextInfo& info) const {
    if (manifest_.files.at(info.file).bytes > kMaxTokenizerBytes) {
        throw BundleError(name(info.file) + ": too large for a tokenizer");
    }
    try {
        return load_tokenizer(info.kind, read(info.file).view, info.unk_id);
    } catch (const BundleError& error) {
        throw BundleError(name(info.file) + ": " + error.what());
    }
}

}  // namespace tfexport
