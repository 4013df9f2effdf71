#include "tokenizer.h"

#include <functional>
#include <vector>

#include "strict_json.h"
#include "tfexport/errors.h"
#include "unicode.h"

namespace tfexport {

namespace {

/// A plain list, one token a line, the line number being the id; words parted by white space, or characters.
class TokenListTokenizer final : public Tokenizer {
public:
    TokenListTokenizer(std::string_view data, std::int64_t unk_id, bool words)
        : unk_id_(unk_id), words_(words), text_(data) {
        if (!is_utf8(data)) throw BundleError("token list is not UTF-8");
        if (data.find_first_not_of(" \t\n\r\f\v") == std::string_view::npos) throw BundleError("token list is empty");
        std::string_view rest = text_;
        if (rest.back() == '\n') rest.remove_suffix(1);
        for (;;) {
            const std::size_t end = rest.find('\n');
            tokens_.push_back(rest.substr(0, end));
            if (end == std::string_view::npos) break;
            rest.remove_prefix(end + 1);
        }
        tokens_.shrink_to_fit();
        slots_.assign(2 * tokens_.size() + 1, kNone);
        for (std::size_t id = 0; id < tokens_.size(); ++id) {
            std::int64_t& found = slots_[slot(tokens_[id])];
            if (found != kNone) throw BundleError("token list names a token twice");
            found = static_cast<std::int64_t>(id);
        }
    }

    std::size_t size() const override { return tokens_.size(); }

    Ids encode(std::string_view text) const override {
        Ids ids;
        for (const std::string_view part : words_ ? words(text) : code_points(trimmed(text))) {
            const std::int64_t found = slots_[slot(part)];
            ids.push_back(found == kNone ? unk_id_ : found);
        }
        return ids;
    }

    std::string decode(const Ids& ids) const override {
        std::string text;
        for (std::size_t i = 0; i < ids.size(); ++i) text += (i > 0 && words_ ? " " : "") + token(ids[i]);
        return text;
    }

    std::string token(std::int64_t id) const override { return std::string(tokens_.at(static_cast<std::size_t>(id))); }

private:
    static constexpr std::int64_t kNone = -1;

    /// Where the id of a token stands in `slots_`, or would stand: the first free place from its hash on.
    std::size_t slot(std::string_view token) const {
        std::size_t place = std::hash<std::string_view>()(token) % slots_.size();
        while (slots_[place] != kNone && tokens_[static_cast<std::size_t>(slots_[place])] != token) {
            place = (place + 1) % slots_.size();
        }
        return place;
    }

    std::int64_t unk_id_;
    bool words_;
    std::string text_;                      // the file, in a quarter of the memory that a map of strings takes
    std::vector<std::string_view> tokens_;  // its lines
    std::vector<std::int64_t> slots_;       // ids by hash; at most half of them are taken
};

}  // namespace

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& kind, std::string_view data, std::int64_t unk_id) {
    if (kind == "sentencepiece") return load_sentencepiece(data);
    if (kind == "words" || kind == "characters") {
        return std::make_shared<TokenListTokenizer>(data, unk_id, kind == "words");
    }
    throw BundleError("unknown tokenizer kind " + shown(std::string_view(kind)));
}

#ifndef TFEXPORT_HAS_SENTENCEPIECE
std::shared_ptr<const Tokenizer> load_sentencepiece(std::string_view) {
    throw UnavailableError(
        "this bundle needs SentencePiece, which this library was built without; "
        "install libsentencepiece-dev and build it again");
}
#endif

}  // namespace tfexport
