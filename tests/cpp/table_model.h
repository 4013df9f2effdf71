// A step model made of a table: the logits are a seeded function of the source and of all tokens so far. The same
// function is in make_fixtures.py. Its state carries the history of every row, so that a beam that is moved to the
// wrong place gets other logits.
#pragma once

#include <map>
#include <string>

#include "step_model.h"

namespace tfexport::test {

struct Table {
    std::uint64_t seed;
    std::string kind;  // smooth, ties: few levels, holes: many tokens at -inf
    std::map<std::int64_t, float> raised;
    Ids always;  // ids that never are -inf
    std::int64_t vocab_size;

    std::vector<float> logits(const Ids& source, const Ids& history) const;
};

class TableModel final : public StepModel {
public:
    explicit TableModel(Table table) : table_(std::move(table)) {}
    std::unique_ptr<DecoderState> start(const std::vector<Ids>& sources, std::size_t beam_size) const override;

private:
    Table table_;
};

}  // namespace tfexport::test
