#include <cmath>
#include <limits>

#include "check.h"
#include "hypothesis.h"
#include "length_penalty.h"
#include "options.h"
#include "random.h"
#include "rules.h"
#include "tfexport/errors.h"
#include "translation.h"

using namespace tfexport;

namespace {

const Target kTarget{6, 1, 2, {0, 1}, 20, {}};
constexpr float kNever = -std::numeric_limits<float>::infinity();

TranslationOptions changed(const char* json) { return with_changes({}, json); }

bool near(double a, double b) { return std::abs(a - b) < 1e-12; }

}  // namespace

TEST(philox_gives_the_known_answers) {
    CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) ==
          std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
          std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(fnv_gives_the_known_answer) { CHECK(fnv1a_64({0x626f6f66}) == 0xdd120e790c2512af); }

TEST(random_times_are_those_of_each_id) {
    const Block block = draw_block(~std::uint64_t{0}, 7, 3, 5);
    CHECK((block == philox4x32({7, 3, 5, 0}, {0xffffffff, 0xffffffff})));
    ExponentialTimes times(block);
    for (const std::int64_t id : {0, 1, 2, 3, 4, 9, 6, 5, 1000003}) {
        const Block words =
            philox4x32({static_cast<std::uint32_t>(id / 4), 0, block[2], block[3]}, {block[0], block[1]});
        CHECK(near(times.of(id), -std::log((words.at(static_cast<std::size_t>(id % 4)) + 0.5) / 4294967296)));
    }
}

TEST(length_penalties_are_those_of_the_table) {
    CHECK(near(penalised(-6, 3, changed(R"({"length_penalty": "none"})")), -6));
    CHECK(near(penalised(-6, 3, changed(R"({"length_penalty": "average", "alpha": 2})")), -6.0 / 9));
    CHECK(near(penalised(-6, 3, changed(R"({"length_penalty": "average", "length_offset": 1})")), -1.5));
    CHECK(near(penalised(-6, 7, changed(R"({"length_penalty": "gnmt"})")), -3));
    CHECK(near(penalised(-6, 4, changed(R"({"length_penalty": "word_reward", "word_reward": 0.5})")), -4));
}

TEST(length_limit_is_the_smallest_of_all) {
    CHECK(length_limit(3, 0, changed(R"({"max_length_extra": 1})"), kTarget) == 7);
    CHECK(length_limit(3, 0, changed(R"({"max_length": 5})"), kTarget) == 5);
    CHECK(length_limit(3, 4, changed(R"({"max_length_ratio": null})"), kTarget) == 16);
    CHECK(length_limit(1000000, 0, changed(R"({"max_length_ratio": 1e300, "max_length_extra": 9223372036854775807})"),
                       kTarget) == 20);
    CHECK(length_limit(3, 0, changed(R"({"max_length": 18446744073709551615})"), kTarget) == 20);
}

TEST(repetition_penalty_makes_any_logit_smaller) {
    std::vector<float> logits{0, 0, 1, 4, -4, 2};
    apply_rules(logits, {3, 4, 3}, std::vector<float>(6, 0), changed(R"({"repetition_penalty": 2})"), kTarget);
    CHECK(logits == std::vector<float>{0, 0, 1, 2, -8, 2});
}

TEST(an_ngram_is_not_completed_twice_but_the_end_is_never_blocked) {
    CHECK(repeating_tokens({3, 4, 5, 3, 4}, 3) == Ids{5});
    CHECK(repeating_tokens({3, 4}, 3).empty());
    CHECK(repeating_tokens({3, 4, 3}, 1) == (Ids{3, 4, 3}));
    std::vector<float> logits(6, 1);
    apply_rules(logits, {2, 3}, std::vector<float>(6, 0), changed(R"({"no_repeat_ngram_size": 1})"), kTarget);
    CHECK(logits == std::vector<float>{1, 1, 1, kNever, 1, 1});
}

TEST(where_everything_is_forbidden_the_hypothesis_ends) {
    std::vector<float> logits(6, 1);
    apply_rules(logits, {}, std::vector<float>(6, kNever), {}, kTarget);
    CHECK(logits == std::vector<float>{kNever, kNever, 0, kNever, kNever, kNever});
}

TEST(the_common_bias_forbids_the_end_only_below_the_least_length) {
    const TranslationOptions options = changed(R"({"min_length": 2, "suppress_tokens": [4]})");
    CHECK(common_bias(options, kTarget, 1) == std::vector<float>{kNever, kNever, kNever, 0, kNever, 0});
    CHECK(common_bias(options, kTarget, 2) == std::vector<float>{kNever, kNever, 0, 0, kNever, 0});
}

TEST(a_soft_prefix_mixes_the_wanted_token_in) {
    std::vector<float> log_probs{std::log(0.25F), std::log(0.75F), kNever};
    mix_prefix(log_probs, 2, 0.5);
    CHECK(std::abs(std::exp(log_probs[0]) - 0.125F) < 1e-6F);
    CHECK(std::abs(std::exp(log_probs[1]) - 0.375F) < 1e-6F);
    CHECK(std::abs(std::exp(log_probs[2]) - 0.5F) < 1e-6F);
}

TEST(options_that_contradict_are_refused_all_at_once) {
    const auto problem = [](const char* json) {
        return check::message_of<OptionError>([&] { check_options(changed(json), kTarget); });
    };
    const std::string several = problem(R"({"beam_size": 0, "alpha": 11, "top_p": 0})");
    CHECK(several.find("beam_size") != std::string::npos && several.find("alpha") != std::string::npos &&
          several.find("top_p") != std::string::npos);
    for (const char* json :
         {R"({"n_best": 2})", R"({"sampling": true, "beam_size": 2})", R"({"min_length": 3, "max_length": 2})",
          R"({"temperature": 0})", R"({"repetition_penalty": 0})", R"({"suppress_tokens": [6]})",
          R"({"prefix_strength": 0})", R"({"sampling": true, "prefix_strength": 0.5})", R"({"word_reward": 1e7})",
          R"({"max_batch_tokens": 0})", R"({"min_length": -1})", R"({"suppress_tokens": [2, 3, 4, 5]})"}) {
        check::report(!problem(json).empty(), __FILE__, __LINE__, json);
    }
    CHECK(problem("{}").empty());
}

TEST(numbers_that_are_none_are_refused) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (const double value : {std::nan(""), kInfinity, -kInfinity}) {
        for (double TranslationOptions::* member :
             {&TranslationOptions::alpha, &TranslationOptions::word_reward, &TranslationOptions::temperature,
              &TranslationOptions::top_p, &TranslationOptions::repetition_penalty,
              &TranslationOptions::prefix_strength}) {
            TranslationOptions options;
            options.*member = value;
            CHECK(contradictions(options, kTarget).size() == 1);
        }
        TranslationOptions options;
        options.max_length_ratio = value;
        CHECK(contradictions(options, kTarget).size() == (value > 0 ? 0 : 1));
        if (value > 0) CHECK(length_limit(3, 2, options, kTarget) == kTarget.max_length - 2);
    }
    CHECK_THROWS(OptionError, "not JSON", changed(R"({"alpha": NaN})"));
    CHECK_THROWS(OptionError, "not JSON", changed(R"({"max_length_ratio": 1e999})"));
    CHECK_THROWS(OptionError, "alpha must be a number, not 'nan'", changed(R"({"alpha": "nan"})"));
}

TEST(parallel_batches_share_the_requests) {
    std::vector<Request> requests;
    for (std::size_t i = 0; i < 10; ++i) requests.push_back({Ids(1 + i % 3, 4), {}, i, 0});
    TranslationOptions options;
    CHECK(batches(requests, options).size() == 1);
    const auto shared = batches(requests, options, 4);
    CHECK(shared.size() >= 4 && shared.front().front().source.size() == 3);
    options.max_batch_tokens = 3;
    CHECK(batches(requests, options, 2).size() == batches(requests, options).size());
    CHECK(batches({requests[0]}, options, 8).size() == 1);
}

TEST(option_names_and_types_are_checked) {
    CHECK_THROWS(OptionError, "unknown field beams", changed(R"({"beams": 2})"));
    CHECK_THROWS(OptionError, "beam_size must be a whole number", changed(R"({"beam_size": 2.5})"));
    CHECK_THROWS(OptionError, "length_penalty must be one of", changed(R"({"length_penalty": "log"})"));
    CHECK_THROWS(OptionError, "appears twice", changed(R"({"seed": 1, "seed": 2})"));
    CHECK_THROWS(OptionError, "not JSON", changed("{"));
    CHECK_THROWS(OptionError, "must be an object", changed("[1]"));
    CHECK(changed(R"({"seed": 18446744073709551615})").seed == ~std::uint64_t{0});
    CHECK(!changed(R"({"max_length_ratio": null})").max_length_ratio);
}
