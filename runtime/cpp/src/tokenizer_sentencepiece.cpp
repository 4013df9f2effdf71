#include <sentencepiece_processor.h>

#include "tfexport/errors.h"
#include "tokenizer.h"
#include "unicode.h"

namespace tfexport {

namespace {

class SentencePieceTokenizer final : public Tokenizer {
public:
    explicit SentencePieceTokenizer(std::string_view model) {
        const auto status = processor_.LoadFromSerializedProto({model.data(), model.size()});
        if (!status.ok()) throw BundleError("not a SentencePiece model: " + std::string(status.message()));
        if (processor_.GetPieceSize() <= 0) throw BundleError("not a SentencePiece model: it holds no pieces");
        for (int id = 0; id < processor_.GetPieceSize(); ++id) {
            if (!is_utf8(processor_.IdToPiece(id)))
                throw BundleError("not a SentencePiece model: a piece is not UTF-8");
        }
    }

    std::size_t size() const override { return static_cast<std::size_t>(processor_.GetPieceSize()); }

    Ids encode(std::string_view text) const override {
        if (trimmed(text).empty()) return {};  // a model without normalisation would make tokens of it
        std::vector<int> ids;
        const auto status = processor_.Encode({text.data(), text.size()}, &ids);
        if (!status.ok()) throw Error("SentencePiece cannot encode a text: " + std::string(status.message()), 1);
        return {ids.begin(), ids.end()};
    }

    std::string decode(const Ids& ids) const override {
        std::string text;
        const auto status = processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
        if (!status.ok()) throw Error("SentencePiece cannot decode ids: " + std::string(status.message()), 1);
        return text;
    }

    std::string token(std::int64_t id) const override { return processor_.IdToPiece(static_cast<int>(id)); }

private:
    sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::shared_ptr<const Tokenizer> load_sentencepiece(std::string_view data) {
    return std::make_shared<SentencePieceTokenizer>(data);
}

}  // namespace tfexport
