// Which files an ONNX graph reads its tensors from, found and changed without the onnx library.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace tfexport {

/// Every `location` of external data in a serialised ModelProto. Throws BundleError for bytes that are not one.
std::set<std::string> external_locations(std::string_view model);

/// The same graph with its external data `shift` bytes further, in another file: so an engine can map weights that lie
/// inside of a zip. The model must have passed `external_locations`. Throws BundleError for an offset that is none.
std::string with_moved_data(std::string_view model, const std::string& location, std::uint64_t shift);

}  // namespace tfexport
