// The decoder's memory of every row, in its three forms. See SPEC.md, "Cache".
//
// Letters: B sentences, K beams, R = B*K rows, S source length, P used length, C capacity, H heads, D head size, L
// layers.
#pragma once

#include <onnxruntime_cxx_api.h>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "encoder.h"
#include "files.h"
#include "manifest.h"
#include "manifest_rules.h"
#include "step_model.h"

namespace tfexport {

/// Both graphs and what they are fed with.
struct Graphs {
    ModelInfo shape;
    FixedShape fixed;  // used in that form only
    std::int64_t pad_id;
    std::vector<Bytes> held;  // what the sessions read from as long as they live
    Ort::Session encoder;
    Ort::Session decoder;
    // Keys and values by turns, 2L of each.
    std::vector<std::string> cross_present;
    std::vector<std::string> cross_past;
    std::vector<std::string> self_present;
    std::vector<std::string> self_past;
    std::vector<std::string> attention;  // outputs on request, as StepModel::attention_names
};

/// What the encoder left for the decoder, once per sentence.
class Memory {
public:
    /// Pads B sources to the longest and runs the encoder graph.
    Memory(Graphs& graphs, const std::vector<Ids>& sources);

    std::size_t sentences() const { return sentences_; }
    ONNXTensorElementDataType type() const { return type_; }

    /// Views of the keys and values [B, H, S, D] and of the mask [B, S]; the memory is this object's.
    Ort::Value cross(std::size_t index);
    Ort::Value mask();

    /// Only these sentences, in this order; they are moved within the same memory. Returns whether anything changed.
    bool select(const std::vector<std::size_t>& sentences);

private:
    std::vector<Ort::Value> cross_;  // as the encoder gave them, with all sentences
    std::vector<std::int32_t> mask_;
    std::vector<std::int64_t> shape_;
    std::size_t sentences_;
    std::size_t row_bytes_ = 0;  // of one sentence in one of `cross_`
    ONNXTensorElementDataType type_ = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
};

/// Buffers of a capacity, written by the graph where each row ends; nothing is copied in or out of a step.
std::unique_ptr<DecoderState> start_in_place(Graphs& graphs, const std::vector<Ids>& sources, std::size_t beam_size);

/// For graphs of standard operators: the cache goes in and comes out one token longer.
std::unique_ptr<DecoderState> start_growing(Graphs& graphs, const std::vector<Ids>& sources, std::size_t beam_size);

/// For graphs whose every shape is a number: sentences are encoded one by one, and the rows are run in chunks.
std::unique_ptr<DecoderState> start_fixed(Graphs& graphs, const std::vector<Ids>& sources, std::size_t beam_size);

/// What each of R rows looks at, from an output of the decoder: [R, heads, S]. Throws ModelOutputError for a value that
/// is none of that.
FloatArray attention_of(const Ort::Value& value, std::size_t rows);

/// Where the engine shall put what it makes.
const Ort::MemoryInfo& cpu_memory();

/// Bytes of one element. Throws BundleError for a type that a cache cannot have.
std::size_t element_size(ONNXTensorElementDataType type);

}  // namespace tfexport
