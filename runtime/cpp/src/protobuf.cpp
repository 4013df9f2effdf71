#include "protobuf.h"

#include "tfexport/errors.h"

namespace tfexport {

namespace {

BundleError broken(const std::string& what, std::size_t position) {
    return BundleError("not an ONNX graph: " + what + " at byte " + std::to_string(position));
}

std::uint64_t read_varint(std::string_view bytes, std::size_t& position, std::size_t end) {
    std::uint64_t value = 0;
    for (unsigned shift = 0; position < end && shift < 70; shift += 7) {
        const auto byte = static_cast<unsigned char>(bytes[position++]);
        if (shift == 63 && byte > 1) break;  // beyond 64 bits
        value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
        if (byte < 0x80) return value;
    }
    throw broken("broken number", position);
}

void append_varint(std::string& bytes, std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    bytes += static_cast<char>(value);
}

}  // namespace

Field read_field(std::string_view bytes, std::size_t position, std::size_t end) {
    const std::size_t begin = position;
    const std::uint64_t tag = read_varint(bytes, position, end);
    if (tag >> 3 == 0 || tag >> 32 != 0)
        throw broken("impossible field", begin);  // readers cut longer tags differently
    const std::uint64_t type = tag & 7;
    std::uint64_t size = 0;
    if (type == 0) {
        read_varint(bytes, position, end);
    } else if (type == 1) {
        size = 8;
    } else if (type == 2) {
        size = read_varint(bytes, position, end);
    } else if (type == 5) {
        size = 4;
    } else {
        throw broken("unknown wire type", begin);
    }
    if (size > end - position) throw broken("cut short", begin);
    const std::string_view content = bytes.substr(position, static_cast<std::size_t>(size));
    return {type == 2 ? tag >> 3 : 0, content, position + content.size()};
}

void append_field(std::string& bytes, std::uint64_t number, std::string_view content) {
    append_varint(bytes, number << 3 | 2);
    append_varint(bytes, content.size());
    bytes += content;
}

}  // namespace tfexport
