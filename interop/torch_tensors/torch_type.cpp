#include "interop/torch_tensors/torch_type.hpp"

#include <algorithm>
#include <array>

namespace bitsnap::interop {
namespace {

struct NamedTorchType {
  std::string_view torch;
  std::string_view name;
  std::uint8_t bytes;
  std::string_view storage = {};  // the class; newer types have none of their own
};

// Types that safetensors names have their dtype; the others are opaque.
constexpr std::array kTorchTypes{
    NamedTorchType{"float32", "F32", 4, "FloatStorage"},
    NamedTorchType{"float", "F32", 4},
    NamedTorchType{"bfloat16", "BF16", 2, "BFloat16Storage"},
    NamedTorchType{"float16", "F16", 2, "HalfStorage"},
    NamedTorchType{"half", "F16", 2},
    NamedTorchType{"float64", "F64", 8, "DoubleStorage"},
    NamedTorchType{"double", "F64", 8},
    NamedTorchType{"int64", "I64", 8, "LongStorage"},
    NamedTorchType{"long", "I64", 8},
    NamedTorchType{"int32", "I32", 4, "IntStorage"},
    NamedTorchType{"int", "I32", 4},
    NamedTorchType{"int16", "I16", 2, "ShortStorage"},
    NamedTorchType{"short", "I16", 2},
    NamedTorchType{"int8", "I8", 1, "CharStorage"},
    NamedTorchType{"uint8", "U8", 1, "ByteStorage"},
    NamedTorchType{"uint16", "U16", 2},
    NamedTorchType{"uint32", "U32", 4},
    NamedTorchType{"uint64", "U64", 8},
    NamedTorchType{"bool", "BOOL", 1, "BoolStorage"},
    NamedTorchType{"float8_e4m3fn", "F8_E4M3", 1},
    NamedTorchType{"float8_e5m2", "F8_E5M2", 1},
    NamedTorchType{"float8_e4m3fnuz", "F8_E4M3FNUZ", 1},
    NamedTorchType{"float8_e5m2fnuz", "F8_E5M2FNUZ", 1},
    NamedTorchType{"float8_e8m0fnu", "F8_E8M0", 1},
    NamedTorchType{"float4_e2m1fn_x2", "F4_E2M1_X2", 1},
    NamedTorchType{"complex64", "C64", 8, "ComplexFloatStorage"},
    NamedTorchType{"cfloat", "C64", 8},
    NamedTorchType{"complex128", "C128", 16, "ComplexDoubleStorage"},
    NamedTorchType{"cdouble", "C128", 16},
    NamedTorchType{"complex32", "C32", 4},
    NamedTorchType{"chalf", "C32", 4},
    NamedTorchType{"quint8", "QUINT8", 1, "QUInt8Storage"},
    NamedTorchType{"qint8", "QINT8", 1, "QInt8Storage"},
    NamedTorchType{"qint32", "QINT32", 4, "QInt32Storage"},
    NamedTorchType{"quint4x2", "QUINT4X2", 0, "QUInt4x2Storage"},
    NamedTorchType{"quint2x4", "QUINT2X4", 0, "QUInt2x4Storage"},
    NamedTorchType{"bits8", "BITS8", 1},
    NamedTorchType{"bits16", "BITS16", 2},
};

TorchType torch_type_of(const NamedTorchType* found) {
  if (found == kTorchTypes.end()) return {};
  return {.dtype = dtype_from_name(found->name), .name = found->name, .bytes = found->bytes};
}

}  // namespace

TorchType torch_dtype(std::string_view name) {
  return torch_type_of(std::ranges::find(kTorchTypes, name, &NamedTorchType::torch));
}

std::string_view torch_dtype_name(std::string_view dtype_name) {
  // A tensor of a quantized type has scales besides its elements.
  const auto* const found = std::ranges::find_if(kTorchTypes, [&](const NamedTorchType& type) {
    return type.name == dtype_name && type.bytes > 0 && !type.name.starts_with('Q');
  });
  return found == kTorchTypes.end() ? std::string_view() : found->torch;
}

std::string_view torch_storage_class(std::string_view torch_name) {
  const auto* const found = std::ranges::find(kTorchTypes, torch_name, &NamedTorchType::torch);
  return found == kTorchTypes.end() ? std::string_view() : found->storage;
}

TorchType torch_storage_type(std::string_view class_name) {
  // torch.UntypedStorage, and torch.storage._UntypedStorage of torch 1.11 and 1.12.
  if (class_name.ends_with("UntypedStorage")) return {.name = "UNTYPED", .bytes = 1, .is_untyped = true};
  if (class_name.empty()) return {};
  return torch_type_of(std::ranges::find(kTorchTypes, class_name, &NamedTorchType::storage));
}

std::string big_endian_name(const TorchType& type) { return std::string(type.name) + (type.bytes > 1 ? "_BE" : ""); }

}  // namespace bitsnap::interop
