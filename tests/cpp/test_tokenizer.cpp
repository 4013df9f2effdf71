#include "check.h"
#include "sha256.h"
#include "tfexport/errors.h"
#include "tokenizer.h"
#include "unicode.h"

using namespace tfexport;

TEST(utf8_is_checked_strictly) {
    for (const char* good : {"", "abc", "\xC3\xA4", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xF4\x8F\xBF\xBF"})
        CHECK(is_utf8(good));
    for (const char* bad : {"\x80", "\xC3", "\xC0\x80", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                            "\xF5\x80\x80\x80", "\xE2\x82", "a\xFF"}) {
        check::report(!is_utf8(bad), __FILE__, __LINE__, "taken as UTF-8");
    }
}

TEST(white_space_is_that_of_the_specification) {
    CHECK(words("\u3000 ein\u00a0hund\u200b\ufefflief\u2029").size() == 3);
    CHECK(words(" \t\r\n\u0085").empty());
    CHECK(trimmed("\u2003 a b\u202f") == "a b");
    CHECK(words("a\u180eb").size() == 1);  // not White_Space
}

TEST(a_word_list_splits_at_white_space) {
    const auto tokens = load_tokenizer("words", "<pad>\n<s>\n</s>\n<unk>\nein\nhund\n", 3);
    CHECK(tokens->size() == 6);
    CHECK(tokens->encode(" ein  katze\thund ") == Ids{4, 3, 5});
    CHECK(tokens->encode(" \u3000").empty());
    CHECK(tokens->decode({4, 5}) == "ein hund");
    CHECK(tokens->token(3) == "<unk>");
}

TEST(a_character_list_takes_code_points) {
    const auto tokens = load_tokenizer("characters", "a\n\xC3\xA4\n \n\xF0\x9F\x98\x80", 0);
    CHECK(tokens->encode(" \xC3\xA4 \xF0\x9F\x98\x80x ") == Ids{1, 2, 3, 0});
    CHECK(tokens->decode({1, 3}) == "\xC3\xA4\xF0\x9F\x98\x80");
}

TEST(a_broken_token_list_is_refused) {
    CHECK_THROWS(BundleError, "not UTF-8", load_tokenizer("words", "a\n\xFF\n", 0));
    CHECK_THROWS(BundleError, "empty", load_tokenizer("words", " \n", 0));
    CHECK_THROWS(BundleError, "twice", load_tokenizer("words", "a\nb\na\n", 0));
    CHECK_THROWS(BundleError, "unknown tokenizer kind", load_tokenizer("bytes", "a\n", 0));
    CHECK_THROWS(Error, "SentencePiece", load_tokenizer("sentencepiece", "no model", 0));
}

TEST(sha256_gives_the_known_answers) {
    const auto digest = [](const std::string& text, std::size_t piece) {
        Sha256 sha;
        for (std::size_t i = 0; i < text.size(); i += piece) sha.update(std::string_view(text).substr(i, piece));
        return sha.hex();
    };
    CHECK(digest("", 1) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(digest("abc", 3) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const std::string million(1000000, 'a');
    for (const std::size_t piece : std::vector<std::size_t>{1000000, 63, 64, 65, 1}) {
        CHECK(digest(million, piece) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}
