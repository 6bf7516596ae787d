// Names of the quantizations.
#include <bitsnap/quantization.hpp>

#include <algorithm>
#include <array>
#include <cmath>

#include "tensor/quantization_amounts.hpp"

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

bool tensor::is_amount_of(Quantization quantization, double amount) noexcept {
  const auto is_whole = [amount](double most) { return amount >= 0 && amount <= most && amount == std::floor(amount); };
  switch (quantization) {
    case Quantization::exact: return true;
    case Quantization::mantissa_bits: return is_whole(kMostMantissaBits);
    case Quantization::master_bits: return is_whole(kMostMasterBits);
    case Quantization::update_step: return amount > 0 && amount <= 1;
    case Quantization::clusters: return amount == 16 || amount == 256;
  }
  return false;
}

}  // namespace bitsnap
