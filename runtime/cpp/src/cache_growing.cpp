#include <algorithm>
#include <cstring>

#include "cache.h"

namespace tfexport {

namespace {

class GrowingState final : public DecoderState {
public:
    GrowingState(Graphs& graphs, const std::vector<Ids>& sources, std::size_t beam_size)
        : graphs_(graphs),
          memory_(graphs, sources),
          beams_(beam_size),
          lengths_(sources.size() * beam_size, 0),
          no_bias_(static_cast<std::size_t>(graphs.shape.target_vocab_size), 0.0F) {
        for (std::size_t i = 0; i < graphs.self_past.size(); ++i) layers_.push_back(empty_layer(lengths_.size(), 0));
    }

    Candidates step(const Ids& tokens, const std::vector<float>& bias, std::size_t count) override {
        scores_.resize(lengths_.size() * count);
        ids_.resize(lengths_.size() * count);
        const std::vector<std::int64_t> shape{static_cast<std::int64_t>(lengths_.size()),
                                              static_cast<std::int64_t>(count)};
        std::vector<Ort::Value> wanted;
        wanted.push_back(tensor_view(scores_.data(), scores_.size() * 4, shape, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT));
        wanted.push_back(tensor_view(ids_.data(), ids_.size() * 8, shape, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64));
        run({"candidate_scores", "candidate_ids"}, std::move(wanted), tokens, bias, count);
        return {scores_.data(), ids_.data(), lengths_.size(), count};
    }

    std::vector<const float*> step_logits(const Ids& tokens) override {
        logits_.resize(lengths_.size() * no_bias_.size());
        const std::vector<std::int64_t> shape{static_cast<std::int64_t>(lengths_.size()),
                                              static_cast<std::int64_t>(no_bias_.size())};
        std::vector<Ort::Value> wanted;
        wanted.push_back(tensor_view(logits_.data(), logits_.size() * 4, shape, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT));
        run({"logits"}, std::move(wanted), tokens, no_bias_, 1);
        std::vector<const float*> rows;
        for (std::size_t row = 0; row < lengths_.size(); ++row) rows.push_back(logits_.data() + row * no_bias_.size());
        return rows;
    }

    std::vector<FloatArray> step_attention(const Ids& tokens) override {
        std::vector<const char*> names;
        std::vector<Ort::Value> wanted;
        for (const std::string& name : graphs_.attention) {
            names.push_back(name.c_str());
            wanted.emplace_back(nullptr);
        }
        std::vector<FloatArray> all;
        for (const Ort::Value& found : run(names, std::move(wanted), tokens, no_bias_, 1)) {
            all.push_back(attention_of(found, lengths_.size()));
        }
        return all;
    }

    void select(const std::vector<std::size_t>& rows) override {
        bool moved = rows.size() != lengths_.size();
        std::vector<std::size_t> sentences;
        for (std::size_t row = 0; row < rows.size(); ++row) {
            moved = moved || rows[row] != row;
            if (row % beams_ == 0) sentences.push_back(rows[row] / beams_);
        }
        if (!moved) return;
        memory_.select(sentences);
        const auto length = static_cast<std::size_t>(lengths_.front());
        const auto& model = graphs_.shape;
        const std::size_t row_bytes =
            static_cast<std::size_t>(model.num_heads * model.cache_head_size) * length * element_size(memory_.type());
        for (Ort::Value& layer : layers_) {
            Ort::Value picked = empty_layer(rows.size(), length);
            auto* target = static_cast<char*>(picked.GetTensorMutableRawData());
            const auto* source = static_cast<const char*>(layer.GetTensorRawData());
            for (const std::size_t row : rows) {
                std::memcpy(target, source + row * row_bytes, row_bytes);
                target += row_bytes;
            }
            layer = std::move(picked);
        }
        lengths_.resize(rows.size());
    }

private:
    /// Runs one step; `wanted` are the outputs in front of the cache: memory that is there, or nothing for what the
    /// engine shall make. Returns them.
    std::vector<Ort::Value> run(std::vector<const char*> output_names, std::vector<Ort::Value> wanted,
                                const Ids& tokens, const std::vector<float>& bias, std::size_t count) {
        const auto rows = static_cast<std::int64_t>(lengths_.size());
        auto candidates = static_cast<std::int64_t>(count);
        std::vector<const char*> names{"input_ids", "past_lengths", "num_candidates", "logit_bias",
                                       "encoder_attention_mask"};
        std::vector<Ort::Value> inputs;
        // Inputs: the engine only reads them.
        auto* newest = const_cast<std::int64_t*>(tokens.data());
        auto* added = const_cast<float*>(bias.data());
        inputs.push_back(tensor_view(newest, tokens.size() * 8, {rows, 1}, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64));
        inputs.push_back(
            tensor_view(lengths_.data(), lengths_.size() * 4, {rows}, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32));
        inputs.push_back(tensor_view(&candidates, 8, {1}, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64));
        inputs.push_back(tensor_view(added, bias.size() * 4, {1, static_cast<std::int64_t>(bias.size())},
                                     ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT));
        inputs.push_back(memory_.mask());
        for (std::size_t i = 0; i < layers_.size(); ++i) {
            names.push_back(graphs_.cross_past[i].c_str());
            inputs.push_back(memory_.cross(i));
            names.push_back(graphs_.self_past[i].c_str());
            inputs.push_back(std::move(layers_[i]));
            output_names.push_back(graphs_.self_present[i].c_str());
            wanted.emplace_back(nullptr);
        }
        graphs_.decoder.Run(Ort::RunOptions{nullptr}, names.data(), inputs.data(), inputs.size(), output_names.data(),
                            wanted.data(), wanted.size());
        std::move(wanted.end() - static_cast<std::ptrdiff_t>(layers_.size()), wanted.end(), layers_.begin());
        wanted.resize(wanted.size() - layers_.size());
        for (std::int32_t& length : lengths_) ++length;
        check_layers();
        return wanted;
    }

    /// Memory is copied by these shapes, so they must be what the manifest says.
    void check_layers() const {
        const std::vector<std::int64_t> shape{static_cast<std::int64_t>(lengths_.size()), graphs_.shape.num_heads,
                                              lengths_.front(), graphs_.shape.cache_head_size};
        for (const Ort::Value& layer : layers_) {
            const auto info = layer.GetTensorTypeAndShapeInfo();
            if (info.GetShape() != shape || info.GetElementType() != memory_.type()) {
                throw Ort::Exception("the decoder gave a cache of a wrong shape", ORT_FAIL);
            }
        }
    }

    Ort::Value empty_layer(std::size_t rows, std::size_t length) const {
        const std::int64_t shape[] = {static_cast<std::int64_t>(rows), graphs_.shape.num_heads,
                                      static_cast<std::int64_t>(length), graphs_.shape.cache_head_size};
        Ort::AllocatorWithDefaultOptions allocator;
        return Ort::Value::CreateTensor(allocator, shape, 4, memory_.type());
    }

    Graphs& graphs_;
    Memory memory_;
    std::size_t beams_;
    std::vector<std::int32_t> lengths_;  // [R], all equal
    std::vector<float> no_bias_;
    std::vector<Ort::Value> layers_;  // keys and values by turns, each [R, H, P, D]; 2L of them
    std::vector<float> scores_;
    Ids ids_;
    std::vector<float> logits_;
};

}  // namespace

std::unique_ptr<DecoderState> start_growing(Graphs& graphs, const std::vector<Ids>& sources, std::size_t beam_size) {
    return std::make_unique<GrowingState>(graphs, sources, beam_size);
}

}  // namespace tfexport
