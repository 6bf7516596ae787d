// The general engines of `bench` for `analyze`, which asks for sizes only.
#pragma once

#include <vector>

#include <bitsnap/analysis.hpp>

namespace bitsnap::cli {

[[nodiscard]] std::vector<AnalysisEngine> analysis_engines();

}  // namespace bitsnap::cli
