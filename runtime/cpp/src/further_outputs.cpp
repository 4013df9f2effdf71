#include "further_outputs.h"

#include <algorithm>
#include <memory>

#include "tfexport/errors.h"

namespace tfexport {

namespace {

/// What the decoder reads for each hypothesis, up to the last token that has a score: [longest, R], by steps.
std::vector<Ids> read_again(const std::vector<Decoded>& hypotheses, const Target& target,
                            const std::vector<std::size_t>& ends) {
    const std::size_t longest = std::max<std::size_t>(1, *std::max_element(ends.begin(), ends.end()));
    std::vector<Ids> steps(longest, Ids(hypotheses.size(), target.eos_id));
    for (std::size_t row = 0; row < hypotheses.size(); ++row) {
        Ids read{target.start_id};
        read.insert(read.end(), target.prefix_ids.begin(), target.prefix_ids.end());
        read.insert(read.end(), hypotheses[row].ids.begin(), hypotheses[row].ids.end());
        for (std::size_t step = 0; step < std::min(read.size(), ends[row]); ++step) steps[step][row] = read[step];
    }
    return steps;
}

/// Adds what one row looked at in one step, without the padding behind the source. seen [R, heads, S or more].
void append(FloatArray& all, const FloatArray& seen, std::size_t row, std::size_t source) {
    const std::size_t heads = seen.shape[1];
    const std::size_t width = seen.shape[2];
    for (std::size_t head = 0; head < heads; ++head) {
        const auto first = seen.values.begin() + static_cast<std::ptrdiff_t>((row * heads + head) * width);
        all.values.insert(all.values.end(), first, first + static_cast<std::ptrdiff_t>(source));
    }
    ++all.shape[0];
}

}  // namespace

std::vector<FloatArray> DecoderState::step_attention(const Ids&) { return {}; }

const std::vector<std::string>& StepModel::attention_names() const {
    static const std::vector<std::string> none;
    return none;
}

FloatArray StepModel::encoder_states(const Ids&) const {
    throw OptionError("this engine does not give the encoder's states");
}

std::vector<std::string> attention_names(const Manifest& manifest) {
    std::vector<std::string> names;
    for (const TensorInfo& output : manifest.graphs.at("decoder").outputs) {
        if (output.name.substr(0, output.name.find('.')) == "cross_attention") names.push_back(output.name);
    }
    return names;
}

bool gives_encoder_states(const Manifest& manifest) {
    const auto& outputs = manifest.graphs.at("encoder").outputs;
    return std::any_of(outputs.begin(), outputs.end(), [](const TensorInfo& o) { return o.name == kEncoderState; });
}

void check_attention(const StepModel& model) {
    if (model.attention_names().empty()) {
        throw OptionError("this bundle does not give attention; export it with --with attention");
    }
}

void add_attention(const StepModel& model, const Ids& source, std::vector<Decoded>& hypotheses, const Target& target) {
    const std::size_t first = target.prefix_ids.size();
    std::vector<std::size_t> ends;
    for (const Decoded& hypothesis : hypotheses) ends.push_back(first + hypothesis.token_scores.size());
    const std::vector<std::string>& names = model.attention_names();
    const std::unique_ptr<DecoderState> state = model.start({source}, hypotheses.size());
    std::size_t step = 0;
    for (const Ids& tokens : read_again(hypotheses, target, ends)) {
        const std::vector<FloatArray> seen = state->step_attention(tokens);
        for (std::size_t i = 0; i < names.size(); ++i) {
            if (seen[i].shape[2] < source.size()) {
                throw ModelOutputError(
                    "the decoder gave attention of a wrong shape; verify the bundle with `tfexport verify`");
            }
            for (std::size_t row = 0; row < hypotheses.size(); ++row) {
                FloatArray& all = hypotheses[row].attention[names[i]];
                if (all.shape.empty()) all.shape = {0, seen[i].shape[1], source.size()};
                if (step >= first && step < ends[row]) append(all, seen[i], row, source.size());
            }
        }
        ++step;
    }
}

}  // namespace tfexport
