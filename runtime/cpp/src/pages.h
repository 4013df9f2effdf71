// What the system is told of memory: what is not needed, and what is large. Hints that only Linux and Android follow.
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

namespace tfexport {

/// The whole pages of a block, whose content is then lost.
void drop_pages(void* begin, std::size_t size);

/// The pages of files, whoever in this process has mapped them: what is needed again comes back by itself.
void drop_pages_of(const std::vector<std::filesystem::path>& files);

/// Large pages for a block that is at least as large as some of them: it is there faster, and read faster.
void use_large_pages(void* begin, std::size_t size);

}  // namespace tfexport
