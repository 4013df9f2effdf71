// A bundle as one zip whose members are stored as they are, so that a device can map them without unpacking.
// Layout: PKWARE's APPNOTE.TXT, with the 64-bit sizes of its section 4.5.3.
#include <algorithm>
#include <array>
#include <vector>

#include "files.h"
#include "manifest.h"
#include "sha256.h"
#include "strict_json.h"
#include "tfexport/errors.h"

namespace tfexport {

namespace {

constexpr std::size_t kMaxMembers = 1025;  // what a manifest may list, and itself
constexpr std::size_t kEndSize = 22;
constexpr std::size_t kEntrySize = 46;
constexpr std::size_t kLocalSize = 30;
constexpr std::uint32_t kPlainFile = 0100000;  // of a Unix mode
constexpr std::uint32_t kFileKinds = 0170000;

/// Little-endian numbers at places that may lie outside; those are damage.
class Image {
public:
    Image(std::string_view bytes, const std::string& origin) : bytes_(bytes), origin_(origin) {}

    std::string_view at(std::uint64_t place, std::uint64_t size) const {
        if (place > bytes_.size() || size > bytes_.size() - place) throw damaged("cut short");
        return bytes_.substr(static_cast<std::size_t>(place), static_cast<std::size_t>(size));
    }
    std::uint64_t number(std::uint64_t place, std::size_t size) const {
        const std::string_view bytes = at(place, size);
        std::uint64_t value = 0;
        for (std::size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
        return value;
    }
    BundleError damaged(const std::string& what) const { return BundleError(origin_ + ": damaged zip: " + what); }
    std::uint64_t size() const { return bytes_.size(); }

private:
    std::string_view bytes_;
    const std::string& origin_;
};

struct Directory {
    std::uint64_t start;
    std::uint64_t members;
};

struct Member {
    std::uint64_t begin;  // of its bytes in the zip
    std::uint64_t size;
    std::uint32_t crc;
};

/// The end record is the last one whose comment reaches the end of the file.
Directory find_directory(const Image& zip, const std::string& origin) {
    const std::uint64_t size = zip.size();
    for (std::uint64_t back = kEndSize; back <= std::min<std::uint64_t>(size, kEndSize + 0xFFFF); ++back) {
        const std::uint64_t end = size - back;
        if (zip.number(end, 4) != 0x06054b50 || zip.number(end + 20, 2) != back - kEndSize) continue;
        Directory directory{zip.number(end + 16, 4), zip.number(end + 10, 2)};
        const bool wide = end >= 20 && zip.number(end - 20, 4) == 0x07064b50;
        if (wide) {
            const std::uint64_t record = zip.number(end - 20 + 8, 8);
            if (zip.number(record, 4) != 0x06064b50) throw zip.damaged("no 64-bit end record");
            directory = {zip.number(record + 48, 8), zip.number(record + 32, 8)};
        }
        return directory;
    }
    throw BundleError(origin + ": neither the folder of a bundle nor a zip of one");
}

/// Replaces the values that do not fit into 32 bits by those of the extra field.
void read_wide(const Image& zip, std::uint64_t extra, std::uint64_t extra_size, std::array<std::uint64_t*, 3> values) {
    const std::uint64_t end = extra + extra_size;
    while (extra + 4 <= end) {
        const std::uint64_t next = extra + 4 + zip.number(extra + 2, 2);
        if (zip.number(extra, 2) == 1) {
            std::uint64_t place = extra + 4;
            for (std::uint64_t* value : values) {
                if (*value != 0xFFFFFFFF) continue;
                if (place + 8 > next) throw zip.damaged("a 64-bit size is missing");
                *value = zip.number(place, 8);
                place += 8;
            }
            return;
        }
        extra = next;
    }
}

std::string_view member_problem(std::string_view name, std::uint64_t flags, std::uint64_t method, std::uint64_t mode,
                                bool same_size) {
    if (!is_file_name(name)) {
        return "is refused: not a plain file name; zip the files of the bundle, not the folder around them";
    }
    const std::uint64_t kind = mode & kFileKinds;
    if (kind != 0 && kind != kPlainFile) return "is refused: not a plain file";
    if ((flags & 1) != 0) return "is encrypted; a bundle's zip is not";
    if (method != 0 || !same_size) return "is compressed; a bundle's zip is stored without compression (zip -0)";
    return "";
}

class ZipFiles final : public Files {
public:
    ZipFiles(Bytes zip, std::string origin, std::optional<std::filesystem::path> path)
        : zip_(std::move(zip)), origin_(std::move(origin)), path_(std::move(path)) {
        const Image image(zip_.view, origin_);
        const Directory directory = find_directory(image, origin_);
        if (directory.members > kMaxMembers) {
            throw BundleError(origin_ + ": holds " + std::to_string(directory.members) +
                              " members, a bundle has at most " + std::to_string(kMaxMembers));
        }
        std::uint64_t entry = directory.start;
        for (std::uint64_t i = 0; i < directory.members; ++i) entry = add_member(image, entry);
        check_overlaps(image);
        check_manifest();
    }

    std::map<std::string, std::uint64_t> sizes() const override {
        std::map<std::string, std::uint64_t> found;
        for (const auto& [name, member] : members_) found[name] = member.size;
        return found;
    }

    Bytes read(const std::string& name, std::uint64_t limit) const override {
        const auto found = members_.find(name);
        if (found == members_.end()) throw BundleError(origin_ + ": holds no file " + shown(std::string_view(name)));
        const Member& member = found->second;
        return {zip_.view.substr(static_cast<std::size_t>(member.begin),
                                 static_cast<std::size_t>(std::min(member.size, limit))),
                zip_.owner};
    }

    std::string sha256(const std::string& name) const override {
        // Reading a mapped file would leave all of it in memory.
        if (path_) return file_sha256(*path_, members_.at(name).begin, members_.at(name).size);
        Sha256 digest;
        digest.update(read(name, UINT64_MAX).view);
        return digest.hex();
    }

    std::optional<Place> place(const std::string& name) const override {
        if (!path_) return std::nullopt;
        return Place{*path_, members_.at(name).begin};
    }

private:
    /// Reads the entry of the central directory at `entry`; returns the place of the next one.
    std::uint64_t add_member(const Image& zip, std::uint64_t entry) {
        if (zip.number(entry, 4) != 0x02014b50) throw zip.damaged("its directory is broken");
        std::uint64_t stored = zip.number(entry + 20, 4);
        std::uint64_t size = zip.number(entry + 24, 4);
        std::uint64_t local = zip.number(entry + 42, 4);
        const std::uint64_t name_size = zip.number(entry + 28, 2);
        const std::uint64_t extra_size = zip.number(entry + 30, 2);
        const std::uint64_t next = entry + kEntrySize + name_size + extra_size + zip.number(entry + 32, 2);
        read_wide(zip, entry + kEntrySize + name_size, extra_size, {&size, &stored, &local});
        const std::string name(zip.at(entry + kEntrySize, name_size));
        std::string_view problem = member_problem(name, zip.number(entry + 8, 2), zip.number(entry + 10, 2),
                                                  zip.number(entry + 38, 4) >> 16, size == stored);
        if (problem.empty() && members_.count(name) > 0) problem = "appears twice";
        if (!problem.empty())
            throw BundleError(origin_ + ": member " + shown(std::string_view(name)) + " " + std::string(problem));
        if (zip.number(local, 4) != 0x04034b50 || zip.at(local + kLocalSize, zip.number(local + 26, 2)) != name) {
            throw zip.damaged("member " + name + " is not where the directory says");
        }
        const std::uint64_t begin = local + kLocalSize + name_size + zip.number(local + 28, 2);
        zip.at(begin, size);
        members_[name] = {begin, size, static_cast<std::uint32_t>(zip.number(entry + 16, 4))};
        return next;
    }

    void check_overlaps(const Image& zip) const {
        std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
        for (const auto& [name, member] : members_) ranges.emplace_back(member.begin, member.begin + member.size);
        std::sort(ranges.begin(), ranges.end());
        for (std::size_t i = 1; i < ranges.size(); ++i) {
            if (ranges[i].first < ranges[i - 1].second) throw zip.damaged("members overlap");
        }
    }

    /// The digests are in the manifest; what guards the manifest itself is the checksum of the zip.
    void check_manifest() const {
        const auto found = members_.find(kManifestName);
        if (found == members_.end()) {
            throw BundleError(origin_ + ": not a bundle: no " + kManifestName + " at the top of this zip");
        }
        if (found->second.size > kMaxManifestBytes) {
            throw BundleError(origin_ + ": its " + kManifestName + " is larger than 16 MiB");
        }
        std::uint32_t crc = ~std::uint32_t{0};
        for (const char c : read(kManifestName, UINT64_MAX).view) {
            crc ^= static_cast<unsigned char>(c);
            for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xEDB88320 & (0 - (crc & 1)));
        }
        if (~crc != found->second.crc) {
            throw BundleError(origin_ + ": damaged zip: the checksum of " + kManifestName + " differs");
        }
    }

    Bytes zip_;
    std::string origin_;
    std::optional<std::filesystem::path> path_;
    std::map<std::string, Member> members_;
};

}  // namespace

std::unique_ptr<Files> zip_files(Bytes zip, const std::string& origin, std::optional<std::filesystem::path> path) {
    return std::make_unique<ZipFiles>(std::move(zip), origin, std::move(path));
}

}  // namespace tfexport
