// Source ids on standard input, one sentence a line; for each the best hypothesis of the module's own search: score, end, ids.
//
//   translate model.pt BEAM_SIZE < ids.txt
//
// One beam calls `greedy`, more call `beam`. Sentences are padded into one batch.

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

namespace {

using Sentences = std::vector<std::vector<int64_t>>;

Sentences read_sentences(std::istream& input) {
  Sentences sentences;
  for (std::string line; std::getline(input, line);) {
    std::istringstream words(line);
    sentences.emplace_back();
    for (int64_t id; words >> id;) sentences.back().push_back(id);
  }
  return sentences;
}

void translate(const std::string& path, int64_t beam_size, const Sentences& sentences) {
  auto module = torch::jit::load(path, at::kCPU);
  size_t width = 0;
  for (const auto& sentence : sentences) width = std::max(width, sentence.size());
  const auto count = static_cast<int64_t>(sentences.size());
  auto ids = at::zeros({count, static_cast<int64_t>(width)}, at::kLong);
  auto mask = at::zeros({count, static_cast<int64_t>(width)}, at::kInt);
  for (int64_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < sentences[i].size(); ++j) {
      ids[i][static_cast<int64_t>(j)] = sentences[i][j];
      mask[i][static_cast<int64_t>(j)] = 1;
    }
  }
  const auto found = beam_size == 1 ? module.get_method("greedy")({ids, mask})
                                    : module.get_method("beam")({ids, mask, beam_size});
  const auto& fields = found.toTupleRef().elements();
  const auto tokens = fields[0].toTensor(), lengths = fields[1].toTensor();
  const auto scores = fields[2].toTensor(), ended = fields[3].toTensor();
  std::cout << std::setprecision(17);
  for (int64_t i = 0; i < count; ++i) {
    std::cout << scores[i][0].item<double>() << ' ' << ended[i][0].item<bool>();
    const auto length = lengths[i][0].item<int64_t>();
    for (int64_t j = 0; j < length; ++j) std::cout << ' ' << tokens[i][0][j].item<int64_t>();
    std::cout << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: translate MODEL.pt BEAM_SIZE < ids.txt\n";
    return 2;
  }
  try {
    const c10::InferenceMode no_gradients;
    translate(argv[1], std::stoll(argv[2]), read_sentences(std::cin));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
