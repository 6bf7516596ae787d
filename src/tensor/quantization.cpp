// Names of what may become of elements.
#include <bitsnap/quantization.hpp>

#include <algorithm>
#include <array>

namespace bitsnap {
namespace {

constexpr std::array kAll{Quantization::exact, Quantization::mantissa_bits, Quantization::master_bits,
                          Quantization::update_step, Quantization::clusters};

}  // namespace

std::string_view quantization_name(Quantization quantization) noexcept {
  switch (quantization) {
    case Quantization::exact: return "exact";
    case Quantization::mantissa_bits: return "mantissa_bits";
    case Quantization::master_bits: return "master_bits";
    case Quantization::update_step: return "update_step";
    case Quantization::clusters: return "clusters";
  }
  return "unknown";
}

std::optional<Quantization> quantization_from_name(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(kAll, name, quantization_name);
  if (found == kAll.end()) return std::nullopt;
  return *found;
}

}  // namespace bitsnap
