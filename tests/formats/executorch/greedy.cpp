// Greedy search over the methods `encoder` and `step` of a model.pte.
//
//   greedy MODEL START_ID EOS_ID MAX_TOKENS NEVER_GENERATED...
//
// Reads one sentence a line, as ids with spaces between, and writes the ids that it finds, one sentence a line.
// Letters: S source length, P cached length, H heads, D head size, V vocabulary, L decoder layers.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

using executorch::aten::ScalarType;
using executorch::extension::from_blob;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::MethodMeta;
using Sizes = std::vector<executorch::aten::SizesType>;

namespace {

template <typename T>
T checked(executorch::runtime::Result<T> result, const char* what) {
    if (!result.ok()) throw std::runtime_error(std::string("cannot ") + what);
    return std::move(*result);
}

void check(Error error, const char* what) {
    if (error != Error::Ok) throw std::runtime_error(std::string("cannot ") + what);
}

Sizes sizes_of(const executorch::runtime::TensorInfo& info) { return {info.sizes().begin(), info.sizes().end()}; }

// Memory for the outputs of a method, as large as it may ever write. What is never written is never mapped.
class Outputs {
public:
    explicit Outputs(const MethodMeta& meta) {
        for (std::size_t i = 0; i < meta.num_outputs(); ++i) {
            const auto info = checked(meta.output_tensor_meta(i), "read the outputs");
            data_.emplace_back(new float[info.nbytes() / sizeof(float)]);
            tensors_.push_back(from_blob(data_.back().get(), sizes_of(info)));
        }
    }

    void bind(Module& module, const std::string& method) const {
        for (std::size_t i = 0; i < tensors_.size(); ++i)
            check(module.set_output(method, tensors_[i], i), "give memory for an output");
    }

    float* data(std::size_t i) const { return data_[i].get(); }

private:
    std::vector<std::unique_ptr<float[]>> data_;
    std::vector<TensorPtr> tensors_;
};

struct Search {
    std::int64_t start_id, eos_id;
    int max_tokens;
    std::vector<std::int64_t> never;
};

class Translator {
public:
    Translator(const std::string& path, Search search)
        : search_(std::move(search)), module_(path), encoder_(meta("encoder")), first_(meta("step")), second_(meta("step")) {
        const MethodMeta step = meta("step");
        const Sizes past = sizes_of(checked(step.input_tensor_meta(3), "read the shape of the cache"));
        heads_ = past[2], size_ = past[4];
        vocabulary_ = sizes_of(checked(step.output_tensor_meta(0), "read the shape of the logits"))[2];
        parts_ = (static_cast<int>(step.num_inputs()) - 3) / 2;  // keys and values of L layers
    }

    std::vector<std::int64_t> translate(std::vector<std::int64_t> source) {
        const int length = static_cast<int>(source.size());
        std::vector<std::int32_t> mask(source.size(), 1);
        encoder_.bind(module_, "encoder");
        const TensorPtr mask_tensor = from_blob(mask.data(), {1, length}, ScalarType::Int);
        run("encoder", {from_blob(source.data(), {1, length}, ScalarType::Long), mask_tensor});

        std::vector<std::int64_t> found;
        std::int64_t token = search_.start_id;
        Outputs *past = &first_, *present = &second_;
        for (std::int32_t position = 0; position < search_.max_tokens; ++position) {
            present->bind(module_, "step");
            std::vector<TensorPtr> inputs{from_blob(&token, {1, 1}, ScalarType::Long),
                                          from_blob(&position, {1, 1}, ScalarType::Int), mask_tensor};
            for (int i = 0; i < parts_; ++i) inputs.push_back(from_blob(past->data(1 + i), {1, 1, heads_, position, size_}));
            for (int i = 0; i < parts_; ++i) inputs.push_back(from_blob(encoder_.data(i), {1, heads_, length, size_}));
            run("step", inputs);
            std::swap(past, present);
            token = best(past->data(0));
            if (token == search_.eos_id) break;
            found.push_back(token);
        }
        return found;
    }

private:
    MethodMeta meta(const std::string& method) {
        check(module_.load_method(method), "load a method");
        return checked(module_.method_meta(method), "read a method");
    }

    void run(const std::string& method, const std::vector<TensorPtr>& inputs) {
        checked(module_.execute(method, std::vector<EValue>(inputs.begin(), inputs.end())), "run a method");
    }

    std::int64_t best(float* logits) const {
        for (const std::int64_t id : search_.never) logits[id] = -std::numeric_limits<float>::infinity();
        return std::max_element(logits, logits + vocabulary_) - logits;
    }

    Search search_;
    Module module_;
    Outputs encoder_, first_, second_;
    int heads_ = 0, size_ = 0, vocabulary_ = 0, parts_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
    if (count < 5) {
        std::cerr << "greedy MODEL START_ID EOS_ID MAX_TOKENS NEVER_GENERATED...\n";
        return 2;
    }
    try {
        Search search{std::atoll(arguments[2]), std::atoll(arguments[3]), std::atoi(arguments[4]), {}};
        for (int i = 5; i < count; ++i) search.never.push_back(std::atoll(arguments[i]));
        Translator translator(arguments[1], search);
        for (std::string line; std::getline(std::cin, line);) {
            std::istringstream words(line);
            std::vector<std::int64_t> source;
            for (std::int64_t id; words >> id;) source.push_back(id);
            const char* before = "";
            for (const std::int64_t id : translator.translate(source)) {
                std::cout << before << id;
                before = " ";
            }
            std::cout << std::endl;
        }
    } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
    return 0;
}
