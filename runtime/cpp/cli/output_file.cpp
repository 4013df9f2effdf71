#include "output_file.h"

#include <system_error>

#include "tfexport/errors.h"

namespace tfexport::cli {

namespace fs = std::filesystem;

OutputFile::OutputFile(const fs::path& path) : path_(path), written_(path) {
    std::error_code absent;
    if (fs::is_directory(path, absent)) throw Error(path.u8string() + ": is a folder, expected the name of a file");
    if (const fs::path link_target = fs::canonical(path, absent); !absent) path_ = written_ = link_target;
    if (!fs::exists(path_, absent) || fs::is_regular_file(path_)) written_ += ".incomplete";
    stream_.open(written_, std::ios::binary | std::ios::trunc);
    if (!stream_) throw Error(path.u8string() + ": cannot be written");
}

OutputFile::~OutputFile() {
    std::error_code absent;
    if (written_ != path_) fs::remove(written_, absent);
}

void OutputFile::complete() {
    stream_.close();
    std::error_code failed;
    if (written_ != path_) fs::rename(written_, path_, failed);
    if (!stream_ || failed) throw Error(path_.u8string() + ": cannot be written");
}

}  // namespace tfexport::cli
