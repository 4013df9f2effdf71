#include "table_model.h"

#include <algorithm>
#include <limits>

#include "check.h"
#include "proposers.h"
#include "random.h"
#include "rules.h"

namespace tfexport::test {

namespace {

class TableState final : public DecoderState {
public:
    TableState(const Table& table, std::vector<Ids> sources, std::size_t beams)
        : table_(table), sources_(std::move(sources)), beams_(beams), rows_(sources_.size() * beams) {}

    Candidates step(const Ids& tokens, const std::vector<float>& bias, std::size_t count) override {
        step_logits(tokens);
        scores_.clear();
        ids_.clear();
        const auto size = static_cast<std::ptrdiff_t>(table_.vocab_size);
        for (auto row = logits_.begin(); row != logits_.end(); row += size) {
            std::vector<float> log_probs(row, row + size);
            std::transform(log_probs.begin(), log_probs.end(), bias.begin(), log_probs.begin(), std::plus<>());
            log_softmax(log_probs);
            append_best(log_probs, count, scores_, ids_);
        }
        return {scores_.data(), ids_.data(), rows_.size(), count};
    }

    std::vector<const float*> step_logits(const Ids& tokens) override {
        CHECK(tokens.size() == rows_.size());
        logits_.clear();
        for (std::size_t r = 0; r < rows_.size(); ++r) {
            rows_[r].push_back(tokens[r]);
            const Ids history(rows_[r].begin() + 1, rows_[r].end());  // without the start token
            const std::vector<float> row = table_.logits(sources_[r / beams_], history);
            logits_.insert(logits_.end(), row.begin(), row.end());
        }
        std::vector<const float*> rows;
        for (std::size_t r = 0; r < rows_.size(); ++r) {
            rows.push_back(logits_.data() + r * static_cast<std::size_t>(table_.vocab_size));
        }
        return rows;
    }

    void select(const std::vector<std::size_t>& rows) override {
        std::vector<Ids> sources;
        std::vector<Ids> moved;
        for (std::size_t r = 0; r < rows.size(); ++r) {
            if (r % beams_ == 0) sources.push_back(sources_[rows[r] / beams_]);
            CHECK(rows[r] / beams_ == rows[r - r % beams_] / beams_);  // rows of a sentence stay together
            moved.push_back(rows_[rows[r]]);
        }
        sources_ = std::move(sources);
        rows_ = std::move(moved);
    }

private:
    const Table& table_;
    std::vector<Ids> sources_;
    std::size_t beams_;
    std::vector<Ids> rows_;  // what each row has read, the start token included
    std::vector<float> logits_;
    std::vector<float> scores_;
    Ids ids_;
};

/// In [0, 1), with 24 bits.
double uniform(std::uint64_t seed, std::int64_t token, std::uint32_t place, std::uint64_t stream) {
    return (draw_block(seed, static_cast<std::uint32_t>(token), place, stream)[0] >> 8) * 0x1p-24;
}

}  // namespace

std::vector<float> Table::logits(const Ids& source, const Ids& history) const {
    static constexpr float kLevels[] = {0.0F, -1.0F, -1.0F, -2.75F};
    Ids key{static_cast<std::int64_t>(source.size())};
    key.insert(key.end(), source.begin(), source.end());
    key.insert(key.end(), history.begin(), history.end());
    const std::uint64_t stream = fnv1a_64(key);
    std::vector<float> all;
    for (std::int64_t token = 0; token < vocab_size; ++token) {
        const double u = uniform(seed, token, 0, stream);
        float logit = kind == "ties" ? kLevels[static_cast<std::size_t>(u * 4)] : static_cast<float>(8 * u - 4);
        const bool kept = std::find(always.begin(), always.end(), token) != always.end();
        if (kind == "holes" && !kept && uniform(seed, token, 1, stream) < 0.5) {
            logit = -std::numeric_limits<float>::infinity();
        }
        const auto more = raised.find(token);
        all.push_back(more == raised.end() ? logit : logit + more->second);
    }
    return all;
}

std::unique_ptr<DecoderState> TableModel::start(const std::vector<Ids>& sources, std::size_t beam_size) const {
    return std::make_unique<TableState>(table_, sources, beam_size);
}

}  // namespace tfexport::test
