// Where the files of a bundle lie: in a folder, or one behind the other in a zip.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tfexport {

/// Bytes, and what keeps them alive.
struct Bytes {
    std::string_view view;
    std::shared_ptr<const void> owner;
};

/// A file on disk, or a part of one.
struct Place {
    std::filesystem::path file;
    std::uint64_t offset;  // 0 for a file of its own
};

class Files {
public:
    virtual ~Files() = default;

    /// Name and size of everything that is there. Throws BundleError for what is not a plain file.
    virtual std::map<std::string, std::uint64_t> sizes() const = 0;

    /// The content of a file; at most `limit` bytes of it. Throws BundleError.
    virtual Bytes read(const std::string& name, std::uint64_t limit) const = 0;

    /// Throws BundleError.
    virtual std::string sha256(const std::string& name) const = 0;

    /// Where a file lies on disk, so that an engine can map it; nothing for memory.
    virtual std::optional<Place> place(const std::string& name) const = 0;
};

/// A folder.
std::unique_ptr<Files> folder_files(const std::filesystem::path& folder);

/// An uncompressed zip in memory, kept alive by `zip.owner`. `origin` is how errors call it, `path` the file that it
/// was mapped from, if it was. Throws BundleError.
std::unique_ptr<Files> zip_files(Bytes zip, const std::string& origin, std::optional<std::filesystem::path> path);

/// SHA-256 of a part of a file, read piece by piece. Throws BundleError.
std::string file_sha256(const std::filesystem::path& path, std::uint64_t offset, std::uint64_t size);

/// A whole file, mapped where the system can. Throws BundleError.
Bytes map_file(const std::filesystem::path& path);

}  // namespace tfexport
