// A small bundle in memory that is right in every file but has no real graphs, to be spoilt by tests.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "strict_json.h"

namespace tfexport::test {

using Contents = std::map<std::string, std::string>;

/// All files of the bundle; bundle.json lists the others in size and digest.
Contents small_bundle();

/// The manifest of `small_bundle` for these files, as JSON to be changed.
Json manifest_of(const Contents& files);

/// An uncompressed zip. `mode` is the Unix mode of its members, `method` how they claim to be compressed.
std::string zip_of(const Contents& files, unsigned mode = 0100644, unsigned method = 0);

/// A folder with these files that is removed again.
class Folder {
public:
    explicit Folder(const Contents& files);
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder();
    const std::filesystem::path path;
};

}  // namespace tfexport::test
