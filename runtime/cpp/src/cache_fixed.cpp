#include <algorithm>
#include <cstring>
#include <numeric>

#include "cache.h"
#include "proposers.h"
#include "tfexport/errors.h"

namespace tfexport {

namespace {

std::int64_t signed_size(std::size_t size) { return static_cast<std::int64_t>(size); }

/// R rows that the decoder takes in one run; those behind the last row of the cache are idle copies of it.
struct Chunk {
    std::vector<std::size_t> owners;        // [R] sentence of each row
    std::vector<std::vector<char>> cross;   // keys and values by turns, each [R, H, S, D]; 2L of them
    std::vector<std::int32_t> mask;         // [R, S]
    std::vector<std::vector<char>> layers;  // likewise, each [R, H, T, D]; what lies behind a row's length is garbage
    std::vector<std::vector<char>> spare;   // as many, for what the next step gives
};

/// Adds the first `rows` of `found` to what earlier chunks gave.
void append(FloatArray& all, const FloatArray& found, std::size_t rows) {
    const std::size_t size = found.values.size() / found.shape[0] * rows;
    all.values.insert(all.values.end(), found.values.begin(), found.values.begin() + static_cast<std::ptrdiff_t>(size));
    all.shape = {rows + (all.shape.empty() ? 0 : all.shape[0]), found.shape[1], found.shape[2]};
}

class FixedState final : public DecoderState {
public:
    FixedState(Graphs& graphs, const std::vector<Ids>& sources, std::size_t beam_size)
        : graphs_(graphs),
          sizes_(graphs.fixed),
          sentences_(sources.size()),
          mask_(sources.size() * sizes_.source, 0),
          lengths_(sources.size() * beam_size, 0),
          no_bias_(static_cast<std::size_t>(graphs.shape.target_vocab_size), 0.0F) {
        encode(sources);
        std::vector<std::size_t> owners(lengths_.size());
        for (std::size_t row = 0; row < owners.size(); ++row) owners[row] = row / beam_size;
        const std::size_t layer_bytes = sizes_.rows * sizes_.heads * head_bytes();
        for (std::size_t first = 0; first < owners.size(); first += sizes_.rows) {
            Chunk chunk;
            chunk.layers.assign(cross_.size(), std::vector<char>(layer_bytes, 0));
            chunk.spare = chunk.layers;
            take_sentences(chunk, filled_up(owners, first));
            chunks_.push_back(std::move(chunk));
        }
    }

    Candidates step(const Ids& tokens, const std::vector<float>& bias, std::size_t count) override {
        best_.clear();
        ids_.clear();
        if (count > sizes_.candidates) {  // more than the graph ranks
            for (const float* logits : step_logits(tokens)) append_best_of_logits(logits, bias, count, best_, ids_);
            return {best_.data(), ids_.data(), lengths_.size(), count};
        }
        std::vector<float> scores(sizes_.rows * sizes_.candidates);
        Ids ids(scores.size());
        const std::vector<std::int64_t> shape{signed_size(sizes_.rows), signed_size(sizes_.candidates)};
        for (std::size_t place = 0; place < chunks_.size(); ++place) {
            std::vector<Ort::Value> wanted;
            wanted.push_back(tensor_view(scores.data(), scores.size() * 4, shape, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT));
            wanted.push_back(tensor_view(ids.data(), ids.size() * 8, shape, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64));
            run(place, {"candidate_scores", "candidate_ids"}, std::move(wanted), tokens, bias);
            for (std::size_t row = 0; row < real_rows(place); ++row) {
                const auto first = static_cast<std::ptrdiff_t>(row * sizes_.candidates);
                std::copy_n(scores.begin() + first, count, std::back_inserter(best_));
                std::copy_n(ids.begin() + first, count, std::back_inserter(ids_));
            }
        }
        for (std::int32_t& length : lengths_) ++length;
        return {best_.data(), ids_.data(), lengths_.size(), count};
    }

    std::vector<const float*> step_logits(const Ids& tokens) override {
        const std::size_t width = no_bias_.size();
        logits_.resize(chunks_.size() * sizes_.rows * width);
        const std::vector<std::int64_t> shape{signed_size(sizes_.rows), signed_size(width)};
        for (std::size_t place = 0; place < chunks_.size(); ++place) {
            std::vector<Ort::Value> wanted;
            wanted.push_back(tensor_view(logits_.data() + place * sizes_.rows * width, sizes_.rows * width * 4, shape,
                                         ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT));
            run(place, {"logits"}, std::move(wanted), tokens, no_bias_);
        }
        for (std::int32_t& length : lengths_) ++length;
        std::vector<const float*> rows;
        for (std::size_t row = 0; row < lengths_.size(); ++row) rows.push_back(logits_.data() + row * width);
        return rows;
    }

    std::vector<FloatArray> step_attention(const Ids& tokens) override {
        std::vector<FloatArray> all(graphs_.attention.size());
        std::vector<const char*> names;
        for (const std::string& name : graphs_.attention) names.push_back(name.c_str());
        for (std::size_t place = 0; place < chunks_.size(); ++place) {
            std::vector<Ort::Value> wanted;
            for (std::size_t i = 0; i < names.size(); ++i) wanted.emplace_back(nullptr);
            const std::vector<Ort::Value> found = run(place, names, std::move(wanted), tokens, no_bias_);
            for (std::size_t i = 0; i < names.size(); ++i) {
                append(all[i], attention_of(found[i], sizes_.rows), real_rows(place));
            }
        }
        for (std::int32_t& length : lengths_) ++length;
        return all;
    }

    /// Chunks whose rows all stay are kept; the others are written anew, into their spare memory.
    void select(const std::vector<std::size_t>& rows) override {
        std::vector<std::size_t> owners(rows.size());
        for (std::size_t row = 0; row < rows.size(); ++row) {
            owners[row] = chunks_[rows[row] / sizes_.rows].owners[rows[row] % sizes_.rows];
        }
        std::vector<bool> moved(chunks_.size(), false);
        for (std::size_t row = 0; row < rows.size(); ++row) {
            if (rows[row] != row) moved[row / sizes_.rows] = true;
        }
        for (std::size_t row = 0; row < rows.size(); ++row) {
            if (moved[row / sizes_.rows]) copy_row(rows[row], row);
        }
        chunks_.resize((rows.size() + sizes_.rows - 1) / sizes_.rows);
        for (std::size_t place = 0; place < chunks_.size(); ++place) {
            if (!moved[place]) continue;
            chunks_[place].layers.swap(chunks_[place].spare);
            take_sentences(chunks_[place], filled_up(owners, place * sizes_.rows));
        }
        std::vector<std::int32_t> lengths(rows.size());
        for (std::size_t row = 0; row < rows.size(); ++row) lengths[row] = lengths_[rows[row]];
        lengths_ = std::move(lengths);
    }

private:
    /// Runs the encoder once for every source, padded to S.
    void encode(const std::vector<Ids>& sources) {
        for (std::size_t sentence = 0; sentence < sources.size(); ++sentence) {
            PaddedSources<std::int32_t> padded({sources[sentence]}, sizes_.source, graphs_.pad_id);
            keep(padded.encoded(graphs_.encoder, graphs_.cross_present), sentence);
            std::copy(padded.mask.begin(), padded.mask.end(),
                      mask_.begin() + static_cast<std::ptrdiff_t>(sentence * sizes_.source));
        }
    }

    /// What the encoder gave for a sentence.
    void keep(const std::vector<Ort::Value>& found, std::size_t sentence) {
        const ModelInfo& model = graphs_.shape;
        const std::vector<std::int64_t> shape{1, model.num_heads, signed_size(sizes_.source), model.head_size};
        if (sentence == 0) {
            type_ = found.front().GetTensorTypeAndShapeInfo().GetElementType();
            cross_row_bytes_ = static_cast<std::size_t>(shape[1] * shape[2] * shape[3]) * element_size(type_);
            cross_.assign(found.size(), std::vector<char>(sentences_ * cross_row_bytes_));
        }
        for (std::size_t i = 0; i < found.size(); ++i) {
            const auto info = found[i].GetTensorTypeAndShapeInfo();
            if (info.GetShape() != shape || info.GetElementType() != type_) {
                throw ModelOutputError(
                    "the encoder gave keys or values of a wrong shape; verify the bundle with `tfexport verify`");
            }
            std::memcpy(cross_[i].data() + sentence * cross_row_bytes_, found[i].GetTensorRawData(), cross_row_bytes_);
        }
    }

    /// R of the values from `first` on; behind the end the last one again.
    std::vector<std::size_t> filled_up(const std::vector<std::size_t>& values, std::size_t first) const {
        std::vector<std::size_t> some(sizes_.rows, values.back());
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(first), std::min(sizes_.rows, values.size() - first),
                    some.begin());
        return some;
    }

    /// Gives a chunk the keys, values and masks of the sentences that own its rows.
    void take_sentences(Chunk& chunk, std::vector<std::size_t> owners) const {
        if (owners == chunk.owners) return;
        chunk.owners = std::move(owners);
        chunk.mask.resize(sizes_.rows * sizes_.source);
        chunk.cross.resize(cross_.size(), std::vector<char>(sizes_.rows * cross_row_bytes_));
        for (std::size_t row = 0; row < sizes_.rows; ++row) {
            const std::size_t owner = chunk.owners[row];
            std::copy_n(mask_.data() + owner * sizes_.source, sizes_.source, chunk.mask.data() + row * sizes_.source);
            for (std::size_t i = 0; i < cross_.size(); ++i) {
                std::memcpy(chunk.cross[i].data() + row * cross_row_bytes_, cross_[i].data() + owner * cross_row_bytes_,
                            cross_row_bytes_);
            }
        }
    }

    /// The used part of a row, into the spare memory of its new chunk.
    void copy_row(std::size_t from, std::size_t to) {
        const Chunk& source = chunks_[from / sizes_.rows];
        Chunk& target = chunks_[to / sizes_.rows];
        const std::size_t used = static_cast<std::size_t>(lengths_[from]) * token_bytes();
        for (std::size_t head = 0; head < sizes_.heads; ++head) {
            const std::size_t source_place = (from % sizes_.rows * sizes_.heads + head) * head_bytes();
            const std::size_t target_place = (to % sizes_.rows * sizes_.heads + head) * head_bytes();
            for (std::size_t i = 0; i < source.layers.size(); ++i) {
                std::memcpy(target.spare[i].data() + target_place, source.layers[i].data() + source_place, used);
            }
        }
    }

    /// One step of a chunk; `wanted` are the outputs in front of the cache: memory that is there, or nothing for what
    /// the engine shall make. Returns them.
    std::vector<Ort::Value> run(std::size_t place, std::vector<const char*> output_names,
                                std::vector<Ort::Value> wanted, const Ids& tokens, const std::vector<float>& bias) {
        Chunk& chunk = chunks_[place];
        std::vector<std::int32_t> newest(sizes_.rows, 0);
        std::vector<std::int32_t> lengths(sizes_.rows, 0);
        for (std::size_t row = 0; row < real_rows(place); ++row) {
            newest[row] = static_cast<std::int32_t>(tokens[place * sizes_.rows + row]);
            lengths[row] = lengths_[place * sizes_.rows + row];
        }
        const std::int64_t rows = signed_size(sizes_.rows);
        constexpr auto kInt = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32;
        std::vector<const char*> names{"input_ids", "past_lengths", "encoder_attention_mask", "logit_bias"};
        std::vector<Ort::Value> inputs;
        inputs.push_back(tensor_view(newest.data(), newest.size() * 4, {rows, 1}, kInt));
        inputs.push_back(tensor_view(lengths.data(), lengths.size() * 4, {rows}, kInt));
        inputs.push_back(
            tensor_view(chunk.mask.data(), chunk.mask.size() * 4, {rows, signed_size(sizes_.source)}, kInt));
        auto* added = const_cast<float*>(bias.data());  // an input: the engine only reads it
        inputs.push_back(
            tensor_view(added, bias.size() * 4, {1, signed_size(bias.size())}, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT));
        const std::vector<std::int64_t> cross{rows, graphs_.shape.num_heads, signed_size(sizes_.source),
                                              graphs_.shape.head_size};
        const std::vector<std::int64_t> layer{rows, signed_size(sizes_.heads), signed_size(sizes_.target),
                                              signed_size(sizes_.head_size)};
        const auto view = [&](std::vector<char>& data, const std::vector<std::int64_t>& shape) {
            return tensor_view(data.data(), data.size(), shape, type_);
        };
        for (std::size_t i = 0; i < cross_.size(); ++i) {
            names.push_back(graphs_.cross_past[i].c_str());
            inputs.push_back(view(chunk.cross[i], cross));
            names.push_back(graphs_.self_past[i].c_str());
            inputs.push_back(view(chunk.layers[i], layer));
            output_names.push_back(graphs_.self_present[i].c_str());
            wanted.push_back(view(chunk.spare[i], layer));
        }
        graphs_.decoder.Run(Ort::RunOptions{nullptr}, names.data(), inputs.data(), inputs.size(), output_names.data(),
                            wanted.data(), wanted.size());
        chunk.layers.swap(chunk.spare);
        return wanted;
    }

    /// Rows of a chunk that are not idle.
    std::size_t real_rows(std::size_t place) const {
        return std::min(sizes_.rows, lengths_.size() - place * sizes_.rows);
    }

    std::size_t token_bytes() const { return sizes_.head_size * element_size(type_); }
    std::size_t head_bytes() const { return sizes_.target * token_bytes(); }

    Graphs& graphs_;
    const FixedShape& sizes_;
    std::size_t sentences_;
    ONNXTensorElementDataType type_ = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
    std::size_t cross_row_bytes_ = 0;       // of one sentence in one of `cross_`
    std::vector<std::vector<char>> cross_;  // of all sentences, each [B, H, S, D]
    std::vector<std::int32_t> mask_;        // [B, S]
    std::vector<Chunk> chunks_;
    std::vector<std::int32_t> lengths_;  // used positions, by row
    std::vector<float> no_bias_;
    std::vector<float> best_;
    Ids ids_;
    std::vector<float> logits_;
};

}  // namespace

std::unique_ptr<DecoderState> start_fixed(Graphs& graphs, const std::vector<Ids>& sources, std::size_t beam_size) {
    return std::make_unique<FixedState>(graphs, sources, beam_size);
}

}  // namespace tfexport
