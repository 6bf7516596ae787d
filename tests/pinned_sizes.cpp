// The samples, and the size of each with every codec that accepts it.
#include "pinned_sizes.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "codec/registry_encode.hpp"
#include "plan/planner.hpp"

namespace bitsnap {
namespace {

struct PinnedCase {
  std::string_view data;
  std::string_view base;  // empty: none
  DType dtype;
  Role role;
};

constexpr PinnedCase kCases[] = {
    {"weight-bf16.1-later", "", DType::bf16, Role::weight},
    {"weight-bf16.1-later", "weight-bf16.base", DType::bf16, Role::weight},
    {"weight-bf16.10-later", "weight-bf16.base", DType::bf16, Role::weight},
    {"finetune-bf16.1-later", "finetune-bf16.base", DType::bf16, Role::weight},
    {"weight-f16.1-later", "", DType::f16, Role::weight},
    {"weight-f16.1-later", "weight-f16.base", DType::f16, Role::weight},
    {"master-f32.1-later", "", DType::f32, Role::master},
    {"master-f32.1-later", "master-f32.base", DType::f32, Role::master},
    {"exp_avg-f32.1-later", "", DType::f32, Role::exp_avg},
    {"exp_avg-f32.1-later", "exp_avg-f32.base", DType::f32, Role::exp_avg},
    {"exp_avg_sq-f32.1-later", "", DType::f32, Role::exp_avg_sq},
    {"exp_avg_sq-f32.1-later", "exp_avg_sq-f32.base", DType::f32, Role::exp_avg_sq},
};

// All samples are the first elements of matrices of this width.
constexpr codec::RowPlace kRows{.row_elements = 320, .first_column = 0};

// The last one stores quantized elements, which no sample has.
constexpr std::array<std::string_view, 5> kLeftOut{"raw", "constant", "same", "zstd", "clustered"};

Result<std::vector<std::byte>> read_sample(const std::string& folder, std::string_view name) {
  if (name.empty()) return std::vector<std::byte>();
  const std::string path = fmt::format("{}/{}.raw", folder, name);
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (text.empty()) return fail(ErrorKind::not_found, path + ": the sample is missing");
  const ConstByteSpan bytes = std::as_bytes(std::span(text));
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

class Sizes {
 public:
  Sizes(const PinnedCase& pinned, ConstByteSpan data, ConstByteSpan base)
      : pinned_(pinned), data_(data), input_{.kind = codec::InputKind::base, .dtype = pinned.dtype, .bytes = base} {}

  [[nodiscard]] bool with_base() const noexcept { return !input_.bytes.empty(); }

  [[nodiscard]] bool accepts(const codec::Encoder& encoder) const noexcept {
    return encoder.decoder().accepts(pinned_.dtype, inputs(with_base()));
  }

  [[nodiscard]] Result<std::size_t> of_codec(const codec::Encoder& encoder, bool against_base) {
    const codec::EncodeContext context{{.dtype = pinned_.dtype,
                                        .elements = data_.size() / element_size(pinned_.dtype),
                                        .inputs = inputs(against_base)},
                                       kRows};
    std::vector<std::byte> out(encoder.max_encoded_size(pinned_.dtype, context.elements));
    BITSNAP_ASSIGN(const auto size, encoder.encode(data_, context, out, scratch_));
    return std::min(size.value_or(data_.size()), data_.size());
  }

  [[nodiscard]] Result<std::size_t> of_policy() {
    const plan::StreamPlanner planner({.objective = Objective::ratio},
                                      {.dtype = pinned_.dtype, .role = pinned_.role, .has_base = with_base()});
    BITSNAP_ASSIGN(const plan::Choice choice, planner.choose(data_, {.base = input_, .rows = kRows}, scratch_));
    if (choice.candidate.encoder == nullptr) return data_.size();
    return of_codec(*choice.candidate.encoder, choice.candidate.uses_base());
  }

  [[nodiscard]] std::string line(std::string_view codec, std::size_t size) const {
    return fmt::format("{},{},{},{},{}", pinned_.data, with_base() ? pinned_.base : "-", codec, data_.size(), size);
  }

 private:
  [[nodiscard]] std::span<const codec::Input> inputs(bool against_base) const noexcept {
    return {&input_, against_base ? 1U : 0U};
  }

  const PinnedCase& pinned_;
  ConstByteSpan data_;
  codec::Input input_;
  Scratch scratch_;
};

}  // namespace

Result<std::vector<std::string>> pinned_size_lines(const std::string& folder) {
  std::vector<std::string> lines{"sample,base,codec,raw_bytes,payload_bytes"};
  for (const PinnedCase& pinned : kCases) {
    BITSNAP_ASSIGN(const std::vector<std::byte> data, read_sample(folder, pinned.data));
    BITSNAP_ASSIGN(const std::vector<std::byte> base, read_sample(folder, pinned.base));
    Sizes sizes(pinned, data, base);
    for (const codec::Encoder* encoder : codec::all_encoders()) {
      const std::string_view name = encoder->decoder().name();
      if (std::ranges::find(kLeftOut, name) != kLeftOut.end() || !sizes.accepts(*encoder)) continue;
      BITSNAP_ASSIGN(const std::size_t size, sizes.of_codec(*encoder, sizes.with_base()));
      lines.push_back(sizes.line(name, size));
    }
    BITSNAP_ASSIGN(const std::size_t size, sizes.of_policy());
    lines.push_back(sizes.line("lossless", size));
  }
  return lines;
}

}  // namespace bitsnap
