// A file that appears whole or not at all.
#pragma once

#include <filesystem>
#include <fstream>

namespace tfexport::cli {

/// Written beside its place, and moved there by `complete`. A device or a pipe cannot be replaced and is written
/// directly. Throws Error.
class OutputFile {
public:
    explicit OutputFile(const std::filesystem::path& path);
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;
    ~OutputFile();  // of an incomplete file nothing stays

    std::ostream& stream() { return stream_; }
    void complete();

private:
    std::filesystem::path path_;
    std::filesystem::path written_;
    std::ofstream stream_;
};

}  // namespace tfexport::cli
