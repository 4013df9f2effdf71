// The bundle's graphs in ONNX Runtime: with cache.cpp the only files that know it.
#pragma once

#include <memory>
#include <string>

#include "bundle.h"
#include "step_model.h"
#include "tfexport/options.h"

namespace tfexport {

/// Both graphs, ready to run; may be shared between threads.
/// Throws BundleError for graphs that do not load, UnavailableError for an ONNX Runtime that is too old.
std::unique_ptr<StepModel> open_model(const Bundle& bundle, const SessionOptions& options);

}  // namespace tfexport
