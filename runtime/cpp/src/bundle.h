// A bundle: a folder, or the same folder as one uncompressed zip, trusted only after every check. See SPEC.md,
// "Bundle".
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "files.h"
#include "manifest.h"
#include "tfexport/errors.h"
#include "tokenizer.h"

namespace tfexport {

/// Those of both sides; one object where they share a file.
struct Tokenizers {
    std::shared_ptr<const Tokenizer> source;
    std::shared_ptr<const Tokenizer> target;
};

class Bundle {
public:
    /// Opens a folder or a zip. verify=false skips the SHA-256 of every file, nothing else. weights_later leaves out
    /// that of the weights, by far the largest: `check_weights` is then to be called. Throws BundleError.
    static Bundle open(const std::filesystem::path& path, bool verify, bool weights_later = false);

    /// Opens a zip in memory that outlives the bundle. Throws BundleError.
    static Bundle from_memory(const void* zip, std::size_t size, bool verify, bool weights_later = false);

    /// Throws BundleError if the weights are not those that the manifest describes.
    void check_weights() const;

    const Manifest& manifest() const { return manifest_; }

    /// How errors call it, and a file of it.
    const std::string& origin() const { return origin_; }
    std::string name(const std::string& file) const { return origin_ + "/" + file; }

    /// The content of a listed file; for a zip a view into it. Throws BundleError.
    Bytes read(const std::string& file) const;

    /// The same, mapped from disk where it lies there.
    Bytes map(const std::string& file) const;

    /// Where a listed file lies on disk; nothing for a bundle in memory.
    std::optional<Place> place(const std::string& file) const { return files_->place(file); }

    /// Throws BundleError if one is damaged, or if the search could generate an id without a token.
    Tokenizers tokenizers() const;

private:
    Bundle(std::unique_ptr<Files> files, std::string origin, bool verify, bool weights_later);

    BundleError changed(const std::string& file, std::uint64_t size) const;
    void check_listing() const;
    void check_graphs() const;
    void check_digest(const std::string& file) const;
    std::shared_ptr<const Tokenizer> tokenizer(const TextInfo& info) const;

    std::unique_ptr<Files> files_;
    std::string origin_;
    Manifest manifest_;
};

}  // namespace tfexport
