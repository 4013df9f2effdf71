// Sources as an encoder graph reads them.
//
// Letters: B sentences, S source length.
#pragma once

#include <onnxruntime_cxx_api.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "step_model.h"

namespace tfexport {

/// A tensor over memory that someone else owns.
Ort::Value tensor_view(void* data, std::size_t bytes, const std::vector<std::int64_t>& shape,
                       ONNXTensorElementDataType type);

/// Ids and mask of B sources, [B, S]. Id is the type that the graph takes.
template <typename Id>
struct PaddedSources {
    PaddedSources(const std::vector<Ids>& sources, std::size_t length, std::int64_t pad_id)
        : shape{static_cast<std::int64_t>(sources.size()), static_cast<std::int64_t>(length)},
          ids(sources.size() * length, static_cast<Id>(pad_id)),
          mask(sources.size() * length, 0) {
        for (std::size_t i = 0; i < sources.size(); ++i) {
            const auto row = static_cast<std::ptrdiff_t>(i * length);
            std::transform(sources[i].begin(), sources[i].end(), ids.begin() + row,
                           [](std::int64_t id) { return static_cast<Id>(id); });
            std::fill_n(mask.begin() + row, sources[i].size(), 1);
        }
    }

    /// The wanted outputs of the encoder, in that order.
    std::vector<Ort::Value> encoded(Ort::Session& encoder, const std::vector<std::string>& wanted) {
        constexpr auto kIds = std::is_same_v<Id, std::int64_t> ? ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64
                                                               : ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32;
        const char* names[] = {"input_ids", "attention_mask"};
        const Ort::Value inputs[] = {
            tensor_view(ids.data(), ids.size() * sizeof(Id), shape, kIds),
            tensor_view(mask.data(), mask.size() * sizeof(std::int32_t), shape, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32)};
        std::vector<const char*> outputs;
        for (const std::string& name : wanted) outputs.push_back(name.c_str());
        return encoder.Run(Ort::RunOptions{nullptr}, names, inputs, 2, outputs.data(), outputs.size());
    }

    std::vector<std::int64_t> shape;
    std::vector<Id> ids;
    std::vector<std::int32_t> mask;  // 1 on real tokens
};

}  // namespace tfexport
