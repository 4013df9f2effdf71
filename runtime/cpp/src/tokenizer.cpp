#include "tokenizer.h"

#include <unordered_map>
#include <vector>

#include "strict_json.h"
#include "tfexport/errors.h"
#include "unicode.h"

namespace tfexport {

namespace {

/// A plain list, one token a line, the line number being the id; words parted by white space, or characters.
class TokenListTokenizer final : public Tokenizer {
public:
    TokenListTokenizer(std::string_view data, std::int64_t unk_id, bool words) : unk_id_(unk_id), words_(words) {
        if (!is_utf8(data)) throw BundleError("token list is not UTF-8");
        if (data.find_first_not_of(" \t\n\r\f\v") == std::string_view::npos) throw BundleError("token list is empty");
        if (data.back() == '\n') data.remove_suffix(1);
        for (;;) {
            const std::size_t end = data.find('\n');
            tokens_.emplace_back(data.substr(0, end));
            if (end == std::string_view::npos) break;
            data.remove_prefix(end + 1);
        }
        ids_.reserve(tokens_.size());
        for (const std::string& token : tokens_) ids_.emplace(token, static_cast<std::int64_t>(ids_.size()));
        if (ids_.size() != tokens_.size()) throw BundleError("token list names a token twice");
    }

    std::size_t size() const override { return tokens_.size(); }

    Ids encode(std::string_view text) const override {
        Ids ids;
        for (const std::string_view part : words_ ? words(text) : code_points(trimmed(text))) {
            const auto found = ids_.find(std::string(part));
            ids.push_back(found == ids_.end() ? unk_id_ : found->second);
        }
        return ids;
    }

    std::string decode(const Ids& ids) const override {
        std::string text;
        for (std::size_t i = 0; i < ids.size(); ++i) text += (i > 0 && words_ ? " " : "") + token(ids[i]);
        return text;
    }

    std::string token(std::int64_t id) const override { return tokens_.at(static_cast<std::size_t>(id)); }

private:
    std::int64_t unk_id_;
    bool words_;
    std::vector<std::string> tokens_;
    std::unordered_map<std::string, std::int64_t> ids_;
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
