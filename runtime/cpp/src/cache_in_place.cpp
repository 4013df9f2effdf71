#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <optional>

#include "cache.h"
#include "pages.h"

namespace tfexport {

namespace {

constexpr std::int64_t kFirstCapacity = 32;  // tokens that a new cache holds before it is doubled

/// What a step gives beside the cache.
enum class Wanted { candidates, logits, attention };

struct FreeAligned {
    void operator()(char* memory) const { ::operator delete(memory, std::align_val_t{64}); }
};
using AlignedMemory = std::unique_ptr<char, FreeAligned>;

/// Not filled: the graph never reads what it has not written.
AlignedMemory aligned_memory(std::size_t bytes) {
    AlignedMemory memory(static_cast<char*>(::operator new(bytes, std::align_val_t{64})));
    use_large_pages(memory.get(), bytes);
    return memory;
}

/// [2L, R or more, H, C, D]; keys and values by turns. What lies behind a row's length is garbage.
struct Buffers {
    Buffers(std::size_t layer_count, std::size_t row_count, std::size_t head_count, std::size_t token_count,
            std::size_t token_size)
        : layers(layer_count),
          rows(row_count),
          heads(head_count),
          capacity(token_count),
          token_bytes(token_size),
          memory(aligned_memory(layers * rows * heads * capacity * token_bytes)) {}

    char* strip(std::size_t layer, std::size_t row, std::size_t head) {
        return memory.get() + ((layer * rows + row) * heads + head) * capacity * token_bytes;
    }

    std::size_t layers;
    std::size_t rows;  // that there is space for
    std::size_t heads;
    std::size_t capacity;
    std::size_t token_bytes;  // of one head
    AlignedMemory memory;
};

/// A row need not lie at its own index: when beams change places, only a beam that has two heirs is copied, into the
/// place of one that has none. Both descend from one beam of some steps ago: what that had is not copied again.
class InPlaceState final : public DecoderState {
public:
    InPlaceState(Graphs& graphs, const std::vector<Ids>& sources, std::size_t beam_size)
        : graphs_(graphs),
          memory_(graphs, sources),
          beams_(beam_size),
          buffers_(2 * static_cast<std::size_t>(graphs.shape.num_decoder_layers), sources.size() * beam_size,
                   static_cast<std::size_t>(graphs.shape.num_heads),
                   static_cast<std::size_t>(std::min(kFirstCapacity, graphs.shape.max_target_length)),
                   static_cast<std::size_t>(graphs.shape.cache_head_size) * element_size(memory_.type())),
          lengths_(sources.size() * beam_size, 0),
          places_(lengths_.size()),
          common_(lengths_.size() * beam_size, 0) {
        std::iota(places_.begin(), places_.end(), std::size_t{0});
    }

    Candidates step(const Ids& tokens, const std::vector<float>& bias, std::size_t count) override {
        run(tokens, bias, Wanted::candidates, count);
        best_.resize(scores_.size());
        best_ids_.resize(ids_.size());
        for (std::size_t row = 0; row < places_.size(); ++row) {
            const std::size_t place = places_[row] * count;
            std::copy_n(scores_.data() + place, count, best_.data() + row * count);
            std::copy_n(ids_.data() + place, count, best_ids_.data() + row * count);
        }
        return {best_.data(), best_ids_.data(), places_.size(), count};
    }

    std::vector<const float*> step_logits(const Ids& tokens) override {
        no_bias_.resize(static_cast<std::size_t>(graphs_.shape.target_vocab_size), 0.0F);
        run(tokens, no_bias_, Wanted::logits, 1);
        std::vector<const float*> rows;
        for (const std::size_t place : places_) rows.push_back(logits_.data() + place * no_bias_.size());
        return rows;
    }

    std::vector<FloatArray> step_attention(const Ids& tokens) override {
        no_bias_.resize(static_cast<std::size_t>(graphs_.shape.target_vocab_size), 0.0F);
        run(tokens, no_bias_, Wanted::attention, 1);
        std::vector<FloatArray> all;
        const std::vector<Ort::Value> outputs = binding_->GetOutputValues();
        for (std::size_t i = 0; i < graphs_.attention.size(); ++i) {
            const FloatArray by_place = attention_of(outputs[i], places_.size());
            const auto width = static_cast<std::ptrdiff_t>(by_place.values.size() / places_.size());
            FloatArray& by_row = all.emplace_back(FloatArray{by_place.shape, {}});
            for (const std::size_t place : places_) {
                const auto first = by_place.values.begin() + static_cast<std::ptrdiff_t>(place) * width;
                by_row.values.insert(by_row.values.end(), first, first + width);
            }
        }
        return all;
    }

    void select(const std::vector<std::size_t>& rows) override {
        inherit(rows);
        lengths_.resize(rows.size());
        std::vector<std::size_t> sentences;
        for (std::size_t row = 0; row < rows.size(); row += beams_) sentences.push_back(rows[row] / beams_);
        if (memory_.select(sentences)) binding_.reset();
    }

private:
    void run(const Ids& tokens, const std::vector<float>& bias, Wanted wanted, std::size_t count) {
        make_room();
        if (!binding_ || bound_ != wanted || bound_count_ != count) bind(wanted, count);
        if (bound_bias_ != bias.data()) bind_bias(bias);
        for (std::size_t row = 0; row < places_.size(); ++row) tokens_[places_[row]] = tokens[row];
        total_length_ = *std::max_element(lengths_.begin(), lengths_.end()) + 1;
        graphs_.decoder.Run(Ort::RunOptions{nullptr}, *binding_);
        for (std::int32_t& length : lengths_) ++length;
    }

    /// Binds everything once; it is then changed in place until rows, capacity or the kind of output change.
    void bind(Wanted wanted, std::size_t count) {
        const auto rows = static_cast<std::int64_t>(lengths_.size());
        tokens_.resize(lengths_.size());
        count_ = static_cast<std::int64_t>(count);
        binding_.emplace(graphs_.decoder);
        bound_ = wanted;
        bound_count_ = count;
        bound_bias_ = nullptr;
        const auto input = [&](const char* name, Ort::Value value) { binding_->BindInput(name, value); };
        input("input_ids",
              tensor_view(tokens_.data(), tokens_.size() * 8, {rows, 1}, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64));
        input("past_lengths",
              tensor_view(lengths_.data(), lengths_.size() * 4, {rows}, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32));
        input("total_length", tensor_view(&total_length_, 4, {1}, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32));
        input("num_candidates", tensor_view(&count_, 8, {1}, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64));
        input("encoder_attention_mask", memory_.mask());
        if (wanted == Wanted::attention) {  // first, so that they are the first of what the binding gives out
            for (const std::string& name : graphs_.attention) binding_->BindOutput(name.c_str(), cpu_memory());
        } else if (wanted == Wanted::candidates) {
            scores_.resize(lengths_.size() * count);
            ids_.resize(lengths_.size() * count);
            output("candidate_scores", scores_.data(), scores_.size() * 4, count, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
            output("candidate_ids", ids_.data(), ids_.size() * 8, count, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64);
        } else {
            logits_.resize(lengths_.size() * no_bias_.size());
            output("logits", logits_.data(), logits_.size() * 4, no_bias_.size(), ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
        }
        for (std::size_t i = 0; i < buffers_.layers; ++i) {
            input(graphs_.cross_past[i].c_str(), memory_.cross(i));
            const Ort::Value layer = layer_view(i);
            binding_->BindInput(graphs_.self_past[i].c_str(), layer);
            binding_->BindOutput(graphs_.self_present[i].c_str(), layer);
        }
    }

    void output(const char* name, void* data, std::size_t bytes, std::size_t width, ONNXTensorElementDataType type) {
        const std::vector<std::int64_t> shape{static_cast<std::int64_t>(lengths_.size()),
                                              static_cast<std::int64_t>(width)};
        binding_->BindOutput(name, tensor_view(data, bytes, shape, type));
    }

    void bind_bias(const std::vector<float>& bias) {
        auto* data = const_cast<float*>(bias.data());  // an input: the engine only reads it
        binding_->BindInput("logit_bias",
                            tensor_view(data, bias.size() * 4, {1, static_cast<std::int64_t>(bias.size())},
                                        ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT));
        bound_bias_ = bias.data();
    }

    /// Keys or values of the live rows by place, [R, H, C, D], in one piece of memory.
    Ort::Value layer_view(std::size_t layer) {
        const auto& model = graphs_.shape;
        const std::vector<std::int64_t> shape{static_cast<std::int64_t>(lengths_.size()), model.num_heads,
                                              static_cast<std::int64_t>(buffers_.capacity), model.cache_head_size};
        const std::size_t bytes = lengths_.size() * buffers_.heads * buffers_.capacity * buffers_.token_bytes;
        return tensor_view(buffers_.strip(layer, 0, 0), bytes, shape, memory_.type());
    }

    /// Doubles the capacity, at most to the limit of the model, if one more token does not fit.
    void make_room() {
        const auto used = static_cast<std::size_t>(*std::max_element(lengths_.begin(), lengths_.end()));
        if (used < buffers_.capacity) return;
        const auto limit = static_cast<std::size_t>(graphs_.shape.max_target_length);
        Buffers grown(buffers_.layers, lengths_.size(), buffers_.heads, std::min(2 * buffers_.capacity, limit),
                      buffers_.token_bytes);
        for (std::size_t layer = 0; layer < buffers_.layers; ++layer) {
            for (std::size_t row = 0; row < lengths_.size(); ++row) {
                for (std::size_t head = 0; head < buffers_.heads; ++head) {
                    std::memcpy(grown.strip(layer, row, head), buffers_.strip(layer, row, head),
                                used * buffers_.token_bytes);
                }
            }
        }
        buffers_ = std::move(grown);
        binding_.reset();
    }

    /// New row r continues the old row rows[r]. The first heir of a row stays where that is; only the others are
    /// copied.
    void inherit(const std::vector<std::size_t>& rows) {
        std::vector<bool> taken(rows.size(), false);
        std::vector<std::size_t> places(rows.size());
        std::vector<std::size_t> copied;
        for (std::size_t row = 0; row < rows.size(); ++row) {
            places[row] = places_[rows[row]];
            const bool stays = places[row] / beams_ == row / beams_ && !taken[places[row]];
            if (stays) taken[places[row]] = true;
            if (!stays) copied.push_back(row);
        }
        if (!copied.empty()) {  // else what lies in the places is what it was
            const std::vector<std::size_t> sources = places;
            std::size_t free = 0;  // a sentence has as many free places as rows to copy, and both are in its order
            for (const std::size_t row : copied) {
                while (taken[free]) ++free;
                places[row] = free++;
            }
            std::vector<std::int32_t> common = common_of_heirs(sources, places);
            for (const std::size_t row : copied) copy_row(sources[row], places[row]);
            common_ = std::move(common);
        }
        places_ = std::move(places);
    }

    /// First tokens that two places share, in the same sentence.
    std::int32_t& common(std::vector<std::int32_t>& all, std::size_t place, std::size_t other) const {
        return all[place * beams_ + other % beams_];
    }

    /// `common_` for rows that continue the places `sources` and lie in `places`: two heirs of one place share all of
    /// it, others what those share that they continue.
    std::vector<std::int32_t> common_of_heirs(const std::vector<std::size_t>& sources,
                                              const std::vector<std::size_t>& places) {
        std::vector<std::int32_t> heirs(places.size() * beams_);
        for (std::size_t row = 0; row < places.size(); ++row) {
            const std::size_t first = row - row % beams_;
            for (std::size_t other = first; other < first + beams_; ++other) {
                const bool twins = sources[row] == sources[other];
                common(heirs, places[row], places[other]) =
                    twins ? lengths_[sources[row]] : common(common_, sources[row], sources[other]);
            }
        }
        return heirs;
    }

    void copy_row(std::size_t from, std::size_t to) {
        const bool relatives = from / beams_ == to / beams_;
        const auto begin = relatives ? static_cast<std::size_t>(common(common_, from, to)) * buffers_.token_bytes : 0;
        const std::size_t end = static_cast<std::size_t>(lengths_[from]) * buffers_.token_bytes;
        for (std::size_t layer = 0; layer < buffers_.layers; ++layer) {
            for (std::size_t head = 0; head < buffers_.heads; ++head) {
                std::memcpy(buffers_.strip(layer, to, head) + begin, buffers_.strip(layer, from, head) + begin,
                            end - begin);
            }
        }
        lengths_[to] = lengths_[from];
    }

    Graphs& graphs_;
    Memory memory_;
    std::size_t beams_;
    Buffers buffers_;
    std::vector<std::int32_t> lengths_;  // [R] used length, by place
    std::vector<std::size_t> places_;    // [R] where each row lies, among the K places of its sentence
    std::vector<std::int32_t> common_;   // [R, K] first tokens that a place shares with each other of its sentence
    std::optional<Ort::IoBinding> binding_;
    Wanted bound_ = Wanted::candidates;
    std::size_t bound_count_ = 0;
    const float* bound_bias_ = nullptr;
    // What is bound besides: changed in place between steps.
    Ids tokens_;
    std::int32_t total_length_ = 0;
    std::int64_t count_ = 0;
    std::vector<float> no_bias_;
    std::vector<float> scores_;
    Ids ids_;
    std::vector<float> logits_;
    // The candidates by row.
    std::vector<float> best_;
    Ids best_ids_;
};

}  // namespace

std::unique_ptr<DecoderState> start_in_place(Graphs& graphs, const std::vector<Ids>& sources, std::size_t beam_size) {
    return std::make_unique<InPlaceState>(graphs, sources, beam_size);
}

}  // namespace tfexport
