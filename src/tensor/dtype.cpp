// The table of element types.
#include <bitsnap/dtype.hpp>

#include <array>

namespace bitsnap {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::size_t size_bytes;
  bool is_float;
};

// In the order of the enum DType.
constexpr std::array<DTypeRow, 17> kRows{{
    {DType::opaque, "opaque", 1, false},
    {DType::boolean, "BOOL", 1, false},
    {DType::u8, "U8", 1, false},
    {DType::i8, "I8", 1, false},
    {DType::u16, "U16", 2, false},
    {DType::i16, "I16", 2, false},
    {DType::u32, "U32", 4, false},
    {DType::i32, "I32", 4, false},
    {DType::u64, "U64", 8, false},
    {DType::i64, "I64", 8, false},
    {DType::f8_e4m3, "F8_E4M3", 1, true},
    {DType::f8_e5m2, "F8_E5M2", 1, true},
    {DType::f16, "F16", 2, true},
    {DType::bf16, "BF16", 2, true},
    {DType::f32, "F32", 4, true},
    {DType::f64, "F64", 8, true},
    {DType::c64, "C64", 8, false},
}};

constexpr bool rows_follow_the_enum() {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<std::size_t>(kRows[i].dtype) != i) return false;
  }
  return true;
}
static_assert(rows_follow_the_enum());

const DTypeRow& row(DType dtype) noexcept { return kRows[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::size_t element_size(DType dtype) noexcept { return row(dtype).size_bytes; }
std::string_view dtype_name(DType dtype) noexcept { return row(dtype).name; }
bool is_float(DType dtype) noexcept { return row(dtype).is_float; }

DType dtype_from_name(std::string_view name) noexcept {
  for (const DTypeRow& candidate : kRows) {
    if (candidate.dtype != DType::opaque && candidate.name == name) return candidate.dtype;
  }
  return DType::opaque;
}

}  // namespace bitsnap
