// Text to ids and back, exactly as the model was trained. See SPEC.md, "Tokenizers".
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "step_model.h"

namespace tfexport {

/// One vocabulary. Ids are positions in it. Texts are UTF-8; that is checked before.
class Tokenizer {
public:
    virtual ~Tokenizer() = default;

    virtual std::size_t size() const = 0;

    /// The ids of the text, without start or end tokens; empty for empty or white-space text.
    virtual Ids encode(std::string_view text) const = 0;

    /// The text of the ids; control tokens of SentencePiece vanish, broken byte runs become U+FFFD.
    virtual std::string decode(const Ids& ids) const = 0;

    /// The written form of an id.
    virtual std::string token(std::int64_t id) const = 0;
};

/// `data` is the file as it lies in the bundle. Throws BundleError, and UnavailableError for a kind that this library
/// was built without.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& kind, std::string_view data, std::int64_t unk_id);

/// A SentencePiece model of any type; normalisation and byte fallback are its own. Throws as `load_tokenizer`.
std::shared_ptr<const Tokenizer> load_sentencepiece(std::string_view data);

}  // namespace tfexport
