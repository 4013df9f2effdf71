#include "length_penalty.h"

#include <cmath>

namespace tfexport {

double penalised(double sum, std::int64_t length, const TranslationOptions& options) {
    const auto n = static_cast<double>(length);
    switch (options.length_penalty) {
        case LengthPenalty::none:
            return sum;
        case LengthPenalty::average:
            return sum / std::pow(n + static_cast<double>(options.length_offset), options.alpha);
        case LengthPenalty::gnmt:  // Wu et al. 2016, equation 14
            return sum / std::pow((5 + n) / 6, options.alpha);
        case LengthPenalty::word_reward:
            return sum + options.word_reward * n;
    }
    return sum;
}

}  // namespace tfexport
