#include "cache.h"

#include <algorithm>
#include <cstring>

#include "tfexport/errors.h"

namespace tfexport {

Memory::Memory(Graphs& graphs, const std::vector<Ids>& sources) : sentences_(sources.size()) {
    std::size_t length = 0;
    for (const Ids& source : sources) length = std::max(length, source.size());
    PaddedSources<std::int64_t> padded(sources, length, graphs.pad_id);
    cross_ = padded.encoded(graphs.encoder, graphs.cross_present);
    mask_ = std::move(padded.mask);

    const ModelInfo& model = graphs.shape;
    shape_ = {padded.shape[0], model.num_heads, padded.shape[1], model.head_size};
    type_ = cross_.front().GetTensorTypeAndShapeInfo().GetElementType();
    for (const Ort::Value& value : cross_) {
        const auto info = value.GetTensorTypeAndShapeInfo();
        if (info.GetShape() != shape_ || info.GetElementType() != type_) {
            throw ModelOutputError(
                "the encoder gave keys or values of a wrong shape; verify the bundle with `tfexport verify`");
        }
    }
    row_bytes_ = static_cast<std::size_t>(shape_[1] * shape_[2] * shape_[3]) * element_size(type_);
}

Ort::Value Memory::cross(std::size_t index) {
    shape_[0] = static_cast<std::int64_t>(sentences_);
    return tensor_view(cross_[index].GetTensorMutableRawData(), sentences_ * row_bytes_, shape_, type_);
}

Ort::Value Memory::mask() {
    const std::vector<std::int64_t> shape{static_cast<std::int64_t>(sentences_), shape_[2]};
    return tensor_view(mask_.data(), sentences_ * static_cast<std::size_t>(shape_[2]) * sizeof(std::int32_t), shape,
                       ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32);
}

bool Memory::select(const std::vector<std::size_t>& sentences) {
    bool changed = sentences.size() != sentences_;
    const std::size_t mask_row = static_cast<std::size_t>(shape_[2]) * sizeof(std::int32_t);
    for (std::size_t place = 0; place < sentences.size(); ++place) {
        const std::size_t from = sentences[place];
        if (from == place) continue;
        changed = true;  // the search moves only from the end into gaps, so no source was overwritten before
        for (Ort::Value& value : cross_) {
            auto* data = static_cast<char*>(value.GetTensorMutableRawData());
            std::memcpy(data + place * row_bytes_, data + from * row_bytes_, row_bytes_);
        }
        auto* mask = reinterpret_cast<char*>(mask_.data());
        std::memcpy(mask + place * mask_row, mask + from * mask_row, mask_row);
    }
    sentences_ = sentences.size();
    return changed;
}

Ort::Value tensor_view(void* data, std::size_t bytes, const std::vector<std::int64_t>& shape,
                       ONNXTensorElementDataType type) {
    return Ort::Value::CreateTensor(cpu_memory(), data, bytes, shape.data(), shape.size(), type);
}

const Ort::MemoryInfo& cpu_memory() {
    static const Ort::MemoryInfo cpu = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    return cpu;
}

FloatArray attention_of(const Ort::Value& value, std::size_t rows) {
    const auto info = value.GetTensorTypeAndShapeInfo();
    const std::vector<std::int64_t> shape = info.GetShape();
    if (shape.size() != 3 || shape[0] != static_cast<std::int64_t>(rows) ||
        info.GetElementType() != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) {
        throw ModelOutputError("the decoder gave attention of a wrong shape; verify the bundle with `tfexport verify`");
    }
    const auto* values = value.GetTensorData<float>();
    return {{shape.begin(), shape.end()}, {values, values + info.GetElementCount()}};
}

std::size_t element_size(ONNXTensorElementDataType type) {
    switch (type) {
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
            return 4;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16:
            return 2;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8:
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8:
            return 1;
        default:
            throw BundleError("the encoder gives keys and values of a type that this library does not know");
    }
}

}  // namespace tfexport
