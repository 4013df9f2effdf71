#include "files.h"

#include <algorithm>
#include <fstream>
#include <system_error>
#include <vector>

#include "sha256.h"
#include "strict_json.h"
#include "tfexport/errors.h"

#if defined(__unix__) || defined(__APPLE__)
#define TFEXPORT_MAPS_FILES 1
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace tfexport {

namespace {

namespace fs = std::filesystem;

BundleError unreadable(const fs::path& path) { return BundleError(path.u8string() + ": cannot be read"); }

class FolderFiles final : public Files {
public:
    explicit FolderFiles(fs::path folder) : folder_(std::move(folder)) {}

    std::map<std::string, std::uint64_t> sizes() const override {
        std::map<std::string, std::uint64_t> found;
        try {
            for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
                const std::string name = entry.path().filename().u8string();
                const fs::file_status status = entry.symlink_status();
                if (!fs::is_regular_file(status)) {
                    const char* what = fs::is_symlink(status) ? ": is a link" : ": is not a plain file";
                    throw BundleError(entry.path().u8string() + what + "; a bundle holds plain files only");
                }
                found[name] = entry.file_size();
            }
        } catch (const fs::filesystem_error& error) {
            throw BundleError(folder_.u8string() + ": cannot be read: " + error.code().message());
        }
        return found;
    }

    Bytes read(const std::string& name, std::uint64_t limit) const override {
        std::ifstream file(path(name), std::ios::binary);
        auto content = std::make_shared<std::string>();
        std::vector<char> block(std::size_t{1} << 18);
        while (file && content->size() < limit) {
            const std::uint64_t wanted = std::min<std::uint64_t>(block.size(), limit - content->size());
            file.read(block.data(), static_cast<std::streamsize>(wanted));
            content->append(block.data(), static_cast<std::size_t>(file.gcount()));
        }
        if (!file.is_open() || file.bad()) throw unreadable(path(name));
        return {*content, content};
    }

    std::string sha256(const std::string& name) const override { return file_sha256(path(name), 0, UINT64_MAX); }

    std::optional<Place> place(const std::string& name) const override { return Place{path(name), 0}; }

private:
    fs::path path(const std::string& name) const { return folder_ / fs::u8path(name); }

    fs::path folder_;
};

#ifdef TFEXPORT_MAPS_FILES
class Mapping {
public:
    explicit Mapping(const fs::path& path) {
        const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        struct stat status{};
        if (file < 0 || ::fstat(file, &status) != 0) {
            if (file >= 0) ::close(file);
            throw unreadable(path);
        }
        size_ = static_cast<std::size_t>(status.st_size);
        if (size_ > 0) start_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
        ::close(file);
        if (start_ == MAP_FAILED) throw unreadable(path);
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() {
        if (start_ != nullptr) ::munmap(start_, size_);
    }
    std::string_view view() const { return {static_cast<const char*>(start_), size_}; }

private:
    void* start_ = nullptr;
    std::size_t size_ = 0;
};
#endif

}  // namespace

std::unique_ptr<Files> folder_files(const fs::path& folder) { return std::make_unique<FolderFiles>(folder); }

std::string file_sha256(const fs::path& path, std::uint64_t offset, std::uint64_t size) {
    std::ifstream file(path, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    Sha256 digest;
    std::vector<char> block(std::size_t{1} << 18);
    while (file && size > 0) {
        file.read(block.data(), static_cast<std::streamsize>(std::min<std::uint64_t>(block.size(), size)));
        digest.update({block.data(), static_cast<std::size_t>(file.gcount())});
        size -= static_cast<std::uint64_t>(file.gcount());
    }
    if (!file.is_open() || file.bad()) throw unreadable(path);
    return digest.hex();
}

Bytes map_file(const fs::path& path) {
#ifdef TFEXPORT_MAPS_FILES
    auto mapping = std::make_shared<const Mapping>(path);
    return {mapping->view(), mapping};
#else
    return FolderFiles(path.parent_path()).read(path.filename().u8string(), UINT64_MAX);
#endif
}

}  // namespace tfexport
