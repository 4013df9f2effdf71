#include "pages.h"

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#endif

namespace tfexport {

#ifdef __linux__
namespace {

constexpr std::size_t kLarge = std::size_t{4} << 20;  // two large pages of most processors

/// For the whole pages of a block.
void advise(void* begin, std::size_t size, int advice) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    if (std::align(page, page, begin, size) != nullptr) ::madvise(begin, size / page * page, advice);
}

}  // namespace

void drop_pages(void* begin, std::size_t size) { advise(begin, size, MADV_DONTNEED); }

void use_large_pages(void* begin, std::size_t size) {
    if (size >= kLarge) advise(begin, size, MADV_HUGEPAGE);
}

void drop_pages_of(const std::vector<std::filesystem::path>& files) {
    std::set<std::string> wanted;
    std::error_code failed;
    for (const auto& file : files) wanted.insert(std::filesystem::canonical(file, failed).string());
    // Each mapping: "begin-end permissions offset device inode path", then lines such as "Anonymous:   0 kB".
    std::ifstream mappings("/proc/self/smaps");
    char* begin = nullptr;
    char* end = nullptr;
    bool found = false;
    for (std::string line; std::getline(mappings, line);) {
        const std::string word = line.substr(0, line.find(' '));
        if (!word.empty() && word.back() != ':') {
            const std::size_t path = line.find('/');
            found = path != std::string::npos && wanted.count(line.substr(path)) > 0;
            void* first = nullptr;
            void* last = nullptr;
            char dash = 0;
            std::istringstream(word) >> first >> dash >> last;
            begin = static_cast<char*>(first);
            end = static_cast<char*>(last);
        } else if (found && word == "Anonymous:" && line.find(" 0 kB") != std::string::npos) {  // nothing was written
            drop_pages(begin, static_cast<std::size_t>(end - begin));
        }
    }
}
#else
void drop_pages(void*, std::size_t) {}
void use_large_pages(void*, std::size_t) {}
void drop_pages_of(const std::vector<std::filesystem::path>&) {}
#endif

}  // namespace tfexport
