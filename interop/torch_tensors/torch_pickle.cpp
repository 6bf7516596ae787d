#include "interop/torch_tensors/torch_pickle.hpp"

#include <algorithm>
#include <charconv>
#include <complex>
#include <cstddef>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "interop/torch_tensors/torch_type.hpp"

namespace bitsnap::interop {
namespace {

void push_dtype(PickleWriter& out, std::string_view torch_name) { out.global("torch", torch_name); }

class ValuePickler {
 public:
  ValuePickler(PickleWriter& out, const PushTensor& push) : out_(out), push_(push) {}

  Result<void> write(const Value& value) {
    return std::visit([this](const auto& held) { return put(held); }, value.get());
  }

 private:
  Result<void> put(std::monostate) {
    out_.none();
    return {};
  }
  Result<void> put(bool value) {
    out_.boolean(value);
    return {};
  }
  Result<void> put(std::int64_t value) {
    out_.integer(value);
    return {};
  }
  Result<void> put(double value) {
    out_.real(value);
    return {};
  }
  Result<void> put(const std::string& value) {
    out_.string(value);
    return {};
  }
  Result<void> put(const ValueBytes& value) {
    out_.bytes(value.bytes);
    return {};
  }

  Result<void> put(const ValueBigInt& value) {
    std::uint64_t number = 0;
    const char* end = value.decimal.data() + value.decimal.size();
    const auto [stop, error] = std::from_chars(value.decimal.data(), end, number);
    if (error != std::errc() || stop != end) return refuse("an integer of more than 64 bits");
    out_.unsigned_integer(number);
    return {};
  }

  Result<void> put(const std::complex<double>& value) {
    out_.call("__builtin__", "complex", [&] {
      out_.real(value.real());
      out_.real(value.imag());
    });
    return {};
  }

  Result<void> put(const ValueList& value) {
    out_.empty_list();
    out_.mark();
    BITSNAP_TRY(put_items(value));
    out_.append_all();
    return {};
  }

  Result<void> put(const ValueTuple& value) {
    out_.mark();
    BITSNAP_TRY(put_items(value.items));
    out_.tuple();
    return {};
  }

  Result<void> put(const ValueDict& value) {
    out_.empty_dict();
    return put_pairs(value);
  }

  Result<void> put(const ValueTensor& value) {
    if (value.kind != ValueTensor::Kind::tensor) return refuse("an array of numpy");
    return push_(out_, value.index);
  }

  Result<void> put(const ValueTyped& value) {
    const Value& content = value.content.front();
    const auto* text = std::get_if<std::string>(&content.get());
    const auto* tuple = std::get_if<ValueTuple>(&content.get());
    if (value.type == "collections.OrderedDict") return put_ordered_dict(content);
    if (value.type == "collections.Counter") return call_with("collections", "Counter", content);
    if (value.type == "set" && tuple != nullptr) return call_with("__builtin__", "set", Value(tuple->items));
    if (value.type == "torch.Size" && tuple != nullptr) return call_with("torch", "Size", content);
    if (value.type == "torch.dtype" && text != nullptr && torch_dtype(*text) != TorchType()) {
      push_dtype(out_, *text);
      return {};
    }
    if (value.type == "torch.device" && text != nullptr) return call_with("torch", "device", content);
    const auto* name =
        tuple == nullptr || tuple->items.empty() ? nullptr : std::get_if<std::string>(&tuple->items[0].get());
    if (name != nullptr && value.type == "registered") {
      return refuse(fmt::format("a value with the registered tag {}", quote_name(*name)));
    }
    if (name != nullptr && value.type == "pickle") {
      return refuse(fmt::format("a pickled value of the type {}", quote_name(*name)));
    }
    return refuse(fmt::format("a value of the type {}", value.type));
  }

  Result<void> put_ordered_dict(const Value& content) {
    const auto* with_metadata = std::get_if<ValueTuple>(&content.get());
    const Value& dict = with_metadata != nullptr ? with_metadata->items.front() : content;
    out_.global("collections", "OrderedDict");
    out_.empty_tuple();
    out_.call();
    BITSNAP_TRY(put_pairs(std::get<ValueDict>(dict.get())));
    if (with_metadata == nullptr) return {};
    out_.empty_dict();
    out_.mark();
    out_.string("_metadata");
    BITSNAP_TRY(write(with_metadata->items.back()));
    out_.set_all();
    out_.build();
    return {};
  }

  Result<void> call_with(std::string_view module, std::string_view name, const Value& argument) {
    Result<void> written;
    out_.call(module, name, [&] { written = write(argument); });
    return written;
  }

  Result<void> put_items(const ValueList& items) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      place_.push_back(std::to_string(i));
      BITSNAP_TRY(write(items[i]));
      place_.pop_back();
    }
    return {};
  }

  Result<void> put_pairs(const ValueDict& dict) {
    out_.mark();
    for (const auto& [key, value] : dict.entries) {
      const auto* name = std::get_if<std::string>(&key.get());
      const auto* number = std::get_if<std::int64_t>(&key.get());
      place_.push_back(name != nullptr ? *name : number != nullptr ? std::to_string(*number) : "?");
      BITSNAP_TRY(write(key));
      BITSNAP_TRY(write(value));
      place_.pop_back();
    }
    out_.set_all();
    return {};
  }

  [[nodiscard]] Result<void> refuse(std::string_view what) const {
    return fail(ErrorKind::unsupported, fmt::format("{} is {}, which torch.load refuses with weights_only=True",
                                                    quote_name(fmt::format("{}", fmt::join(place_, "."))), what));
  }

  PickleWriter& out_;
  const PushTensor& push_;
  std::vector<std::string> place_;
};

void push_extents(PickleWriter& out, const std::vector<std::uint64_t>& extents) {
  out.mark();
  for (const std::uint64_t extent : extents) out.integer(static_cast<std::int64_t>(extent));
  out.tuple();
}

std::vector<std::uint64_t> row_major_strides(const std::vector<std::uint64_t>& shape) {
  std::vector<std::uint64_t> strides(shape.size());
  std::uint64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<std::uint64_t>(shape[i], 1);
  }
  return strides;
}

// ("storage", class, key, "cpu", elements), of which torch makes a storage
void push_storage(PickleWriter& out, std::string_view storage_class, std::string_view module, std::string_view key,
                  std::uint64_t elements) {
  out.mark();
  out.string("storage");
  out.global(module, storage_class);
  out.string(key);
  out.string("cpu");
  out.integer(static_cast<std::int64_t>(elements));
  out.tuple();
  out.persistent_id();
}

}  // namespace

Result<void> push_tensor(PickleWriter& out, const TensorInfo& given, std::string_view storage_key) {
  TensorInfo info = given;
  // safetensors counts 4-bit elements, torch pairs of them.
  if (info.dtype_name == "F4" && !info.shape.empty() && info.shape.back() % 2 == 0) {
    info.dtype_name = "F4_E2M1_X2";
    info.shape.back() /= 2;
  }
  const std::string_view torch_name = torch_dtype_name(info.dtype_name);
  if (torch_name.empty()) {
    return fail(ErrorKind::unsupported,
                fmt::format("tensor {}: torch has no dtype {}", quote_name(info.name), info.dtype_name));
  }
  // Newer dtypes have no class of storages of their own.
  const std::string_view storage_class = torch_storage_class(torch_name);
  const bool has_class = !storage_class.empty();
  const std::uint64_t elements = info.size_bytes / torch_dtype(torch_name).bytes;
  out.global("torch._utils", has_class ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  out.mark();
  if (has_class) {
    push_storage(out, storage_class, "torch", storage_key, elements);
  } else {
    push_storage(out, "UntypedStorage", "torch.storage", storage_key, info.size_bytes);
  }
  out.integer(0);
  push_extents(out, info.shape);
  push_extents(out, row_major_strides(info.shape));
  out.boolean(false);
  out.global("collections", "OrderedDict");
  out.empty_tuple();
  out.call();
  if (!has_class) push_dtype(out, torch_name);
  out.tuple();
  out.call();
  return {};
}

Result<void> push_value(PickleWriter& out, const Value& value, const PushTensor& push) {
  return ValuePickler(out, push).write(value);
}

void push_size(PickleWriter& out, const std::vector<std::uint64_t>& size) {
  out.call("torch", "Size", [&] { push_extents(out, size); });
}

}  // namespace bitsnap::interop
