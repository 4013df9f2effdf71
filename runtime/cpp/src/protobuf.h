// The fields of a protobuf message: https://protobuf.dev/programming-guides/encoding
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tfexport {

struct Field {
    std::uint64_t number;      // 0 for one that is not length-delimited
    std::string_view content;  // of a length-delimited field
    std::size_t end;           // place behind the field
};

/// The field at `position` of a message that ends at `end` of `bytes`. Throws BundleError for what is none.
Field read_field(std::string_view bytes, std::size_t position, std::size_t end);

/// Appends a length-delimited field.
void append_field(std::string& bytes, std::uint64_t number, std::string_view content);

}  // namespace tfexport
