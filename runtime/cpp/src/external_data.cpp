// A walk over a protobuf message that looks only into messages that can hold a tensor. Field numbers are those of
// onnx.proto3. Time is linear in the size of the file, memory in the depth of nesting, which is bounded.
#include "external_data.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "protobuf.h"
#include "tfexport/errors.h"
#include "unicode.h"

namespace tfexport {

namespace {

enum class Message { none, model, training, graph, function, node, attribute, sparse_tensor, tensor, entry };

constexpr std::uint64_t kExternalData = 13;  // field of a tensor
constexpr std::size_t kMaxDepth = 100;       // of nested messages: the limit of protobuf itself

/// The message in a field; none for what cannot hold a tensor.
Message inside(Message message, std::uint64_t number) {
    switch (message) {
        case Message::model:
            return number == 7    ? Message::graph
                   : number == 20 ? Message::training
                   : number == 25 ? Message::function
                                  : Message::none;
        case Message::training:
            return number == 1 || number == 2 ? Message::graph : Message::none;
        case Message::graph:
            return number == 1    ? Message::node
                   : number == 5  ? Message::tensor
                   : number == 15 ? Message::sparse_tensor
                                  : Message::none;
        case Message::function:
            return number == 7 ? Message::node : number == 11 ? Message::attribute : Message::none;
        case Message::node:
            return number == 5 ? Message::attribute : Message::none;
        case Message::attribute:
            return number == 5 || number == 10    ? Message::tensor
                   : number == 6 || number == 11  ? Message::graph
                   : number == 22 || number == 23 ? Message::sparse_tensor
                                                  : Message::none;
        case Message::sparse_tensor:
            return number == 1 || number == 2 ? Message::tensor : Message::none;
        case Message::tensor:
            return number == kExternalData ? Message::entry : Message::none;
        default:
            return Message::none;
    }
}

struct Entry {
    std::string_view key;
    std::string_view value;
};

/// A key-value pair of external_data. A field given twice counts as its last value.
Entry read_entry(std::string_view bytes) {
    Entry entry;
    for (std::size_t position = 0; position < bytes.size();) {
        const Field field = read_field(bytes, position, bytes.size());
        if (field.number == 1) entry.key = field.content;
        if (field.number == 2) entry.value = field.content;
        position = field.end;
    }
    return entry;
}

std::string entry_bytes(std::string_view key, std::string_view value) {
    std::string bytes;
    append_field(bytes, 1, key);
    append_field(bytes, 2, value);
    return bytes;
}

std::string moved_offset(std::string_view offset, std::uint64_t shift) {
    const bool digits =
        !offset.empty() && offset.size() <= 18 && offset.find_first_not_of("0123456789") == std::string_view::npos;
    if (!digits) throw BundleError("not an ONNX graph: an offset of external data is not a number");
    return std::to_string(std::stoull(std::string(offset)) + shift);
}

using Shifts = std::map<std::string, std::uint64_t, std::less<>>;

/// By how much the data of a tensor moves; 0 where the tensor holds it.
std::uint64_t shift_of(std::string_view tensor, const Shifts& shifts) {
    std::uint64_t shift = 0;
    for (std::size_t position = 0; position < tensor.size();) {
        const Field field = read_field(tensor, position, tensor.size());
        position = field.end;
        if (field.number != kExternalData) continue;
        const Entry entry = read_entry(field.content);
        if (entry.key != "location") continue;
        const auto known = shifts.find(entry.value);
        if (known == shifts.end()) throw BundleError("not an ONNX graph: external data that has no place");
        shift = known->second;
    }
    return shift;
}

std::string moved(std::string_view bytes, Message message, const std::string& into, const Shifts& shifts) {
    const std::uint64_t shift = message == Message::tensor ? shift_of(bytes, shifts) : 0;
    std::string out;
    bool external = false;
    bool has_offset = false;
    for (std::size_t position = 0; position < bytes.size();) {
        const Field field = read_field(bytes, position, bytes.size());
        const Message child = inside(message, field.number);
        if (child == Message::none) {
            out += bytes.substr(position, field.end - position);
        } else if (child != Message::entry) {
            append_field(out, field.number, moved(field.content, child, into, shifts));
        } else {
            const Entry entry = read_entry(field.content);
            const bool is_location = entry.key == "location";
            const bool is_offset = entry.key == "offset";
            external = external || is_location;
            has_offset = has_offset || is_offset;
            append_field(out, field.number,
                         entry_bytes(entry.key, is_location ? into
                                                : is_offset ? moved_offset(entry.value, shift)
                                                            : std::string(entry.value)));
        }
        position = field.end;
    }
    if (external && !has_offset) append_field(out, kExternalData, entry_bytes("offset", std::to_string(shift)));
    return out;
}

}  // namespace

std::set<std::string> external_locations(std::string_view model) {
    struct Frame {
        Message message;
        std::string_view bytes;
        std::size_t position;  // of its next field
    };
    std::set<std::string> found;
    std::vector<Frame> stack{{Message::model, model, 0}};
    while (!stack.empty()) {
        Frame frame = stack.back();
        stack.pop_back();
        if (frame.message == Message::entry) {
            const Entry entry = read_entry(frame.bytes);
            if (entry.key != "location") continue;
            if (!is_utf8(entry.value)) throw BundleError("not an ONNX graph: a location of external data is not UTF-8");
            found.emplace(entry.value);
            continue;
        }
        while (frame.position < frame.bytes.size()) {
            const Field field = read_field(frame.bytes, frame.position, frame.bytes.size());
            frame.position = field.end;
            const Message child = inside(frame.message, field.number);
            if (child == Message::none) continue;
            stack.push_back(frame);  // go down, and come back to the rest of this message later
            stack.push_back({child, field.content, 0});
            break;
        }
        if (stack.size() > kMaxDepth) throw BundleError("not an ONNX graph: nested too deep");
    }
    return found;
}

std::string with_moved_data(std::string_view model, const std::string& into, const Shifts& shifts) {
    return moved(model, Message::model, into, shifts);
}

}  // namespace tfexport
