// Parsing by a SAX handler that knows the one shape a header may have, so that nothing else is ever built in memory.
#include "interop/safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <unordered_set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/checked.hpp"
#include "base/try.hpp"
#include "container/json_text.hpp"

namespace bitsnap::interop {
namespace {

using Json = nlohmann::json;

// The one key of a header that is no tensor's name.
constexpr std::string_view kMetadataKey = "__metadata__";

struct Entry {
  std::string name;
  std::size_t position = 0;  // in the header
  std::optional<std::string> dtype;
  std::optional<std::vector<std::uint64_t>> shape;
  std::optional<std::vector<std::uint64_t>> offsets;
};

// Returning false stops the parse; `problem` then says why.
class HeaderHandler final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderHandler(const DecodeLimits& limits) : limits_(limits) {}

  std::vector<Entry> entries;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string problem;

  bool start_object(std::size_t /*elements*/) override {
    switch (place_) {
      case Place::start: place_ = Place::top; return true;
      case Place::top_value: place_ = in_metadata_ ? Place::metadata : Place::tensor; return true;
      default: return stop("an object where none belongs");
    }
  }

  bool end_object() override {
    if (place_ == Place::tensor || place_ == Place::metadata) {
      place_ = Place::top;
      in_metadata_ = false;
    } else {
      place_ = Place::done;
    }
    return true;
  }

  bool key(string_t& key) override {
    if (place_ == Place::top) {
      if (!names_.insert(key).second) return stop("the name stands twice", key);
      in_metadata_ = key == kMetadataKey;
      if (!in_metadata_) {
        if (entries.size() >= limits_.tensors) return stop(fmt::format("more than {} tensors", limits_.tensors));
        if (key.size() > limits_.name_bytes)
          return stop(fmt::format("a name of {} bytes, at most {} can be stored", key.size(), limits_.name_bytes));
        entries.push_back({key, entries.size(), {}, {}, {}});
      }
      place_ = Place::top_value;
      return true;
    }
    key_ = key;
    if (place_ == Place::metadata) {
      if (!metadata_keys_.insert(key).second) return stop(fmt::format("key \"{}\" stands twice", key), kMetadataKey);
      return true;
    }
    Entry& entry = entries.back();
    const bool repeated =
        (key == "dtype" && entry.dtype) || (key == "shape" && entry.shape) || (key == "data_offsets" && entry.offsets);
    if (repeated) return stop(fmt::format("key \"{}\" stands twice", key), entry.name);
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return stop(fmt::format("unknown key \"{}\"", key), entry.name);
    }
    return true;
  }

  bool start_array(std::size_t /*elements*/) override {
    if (place_ != Place::tensor || (key_ != "shape" && key_ != "data_offsets")) return stop_value("an array");
    numbers_.clear();
    place_ = Place::numbers;
    return true;
  }

  bool end_array() override {
    Entry& entry = entries.back();
    (key_ == "shape" ? entry.shape : entry.offsets) = numbers_;
    place_ = Place::tensor;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::numbers) return stop_value("a number");
    if (numbers_.size() >= limits_.rank)
      return stop(fmt::format("more than {} dimensions, which is what can be stored", limits_.rank),
                  entries.back().name);
    numbers_.push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      metadata.emplace_back(key_, value);
      return true;
    }
    if (place_ == Place::tensor && key_ == "dtype") {
      entries.back().dtype = value;
      return true;
    }
    return stop_value("a string");
  }

  bool null() override { return stop_value("null"); }
  bool boolean(bool /*value*/) override { return stop_value("a boolean"); }
  bool number_integer(number_integer_t /*value*/) override { return stop_value("a negative number"); }
  bool number_float(number_float_t /*value*/, const string_t& text) override { return stop_value(text); }
  bool binary(binary_t& /*value*/) override { return stop_value("binary data"); }

  bool parse_error(std::size_t position, const std::string& /*token*/, const Json::exception& /*error*/) override {
    return stop(fmt::format("not valid JSON at byte {}", position));
  }

 private:
  enum class Place : std::uint8_t { start, top, top_value, tensor, metadata, numbers, done };

  bool stop(std::string what, std::string_view tensor = {}) {
    if (problem.empty()) {
      problem = tensor.empty() ? std::move(what) : fmt::format("tensor {}: {}", container::quote_name(tensor), what);
    }
    return false;
  }

  bool stop_value(std::string_view found) {
    if (place_ == Place::start) return stop(fmt::format("{} where the header's object is expected", found));
    if (in_metadata_) return stop(fmt::format("{} where a string is expected", found), kMetadataKey);
    return stop(fmt::format("{} where it does not belong (key \"{}\")", found, key_), entries.back().name);
  }

  const DecodeLimits& limits_;
  Place place_ = Place::start;
  bool in_metadata_ = false;
  std::string key_;
  std::vector<std::uint64_t> numbers_;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> metadata_keys_;
};

tl::unexpected<Error> corrupt(std::string_view tensor, std::string_view what) {
  return fail(ErrorKind::corrupt, fmt::format("tensor {}: {}", container::quote_name(tensor), what));
}

Result<TensorInfo> to_tensor(Entry& entry) {
  if (!entry.dtype || !entry.shape || !entry.offsets) {
    return corrupt(entry.name, "needs all of dtype, shape and data_offsets");
  }
  if (entry.offsets->size() != 2 || (*entry.offsets)[0] > (*entry.offsets)[1]) {
    return corrupt(entry.name, "data_offsets are not two ascending numbers");
  }
  TensorInfo info;
  info.name = entry.name;
  info.dtype_name = *entry.dtype;
  info.dtype = dtype_from_name(*entry.dtype);
  info.shape = *entry.shape;
  info.size_bytes = (*entry.offsets)[1] - (*entry.offsets)[0];
  info.role = guess_role(info.name, info.dtype);
  const auto expected = shape_size_bytes(info.dtype, info.shape);
  if (!expected) return corrupt(entry.name, expected.error().message());
  if (info.dtype != DType::opaque && *expected != info.size_bytes) {
    return corrupt(entry.name, fmt::format("dtype {} and shape make {} bytes, data_offsets {}", info.dtype_name,
                                           *expected, info.size_bytes));
  }
  return info;
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                                   const DecodeLimits& limits) {
  HeaderHandler handler(limits);
  if (!Json::sax_parse(json, &handler)) {
    return fail(ErrorKind::corrupt, fmt::format("safetensors header: {}", handler.problem));
  }
  // Tensors without data begin where others do; they keep the order of the header.
  std::ranges::sort(handler.entries, {}, [](const Entry& entry) {
    const bool placed = entry.offsets && entry.offsets->size() == 2;
    return std::tuple(placed ? (*entry.offsets)[0] : 0, placed ? (*entry.offsets)[1] : 0, entry.position);
  });
  SafetensorsHeader header;
  header.metadata = std::move(handler.metadata);
  std::uint64_t end = 0;
  for (Entry& entry : handler.entries) {
    BITSNAP_ASSIGN(TensorInfo info, to_tensor(entry));
    const std::uint64_t begin = (*entry.offsets)[0];
    if (begin != end) {
      return corrupt(entry.name, fmt::format("its data begins at {}, where {} is expected: the data has {}", begin, end,
                                             begin > end ? "a hole" : "an overlap"));
    }
    end = (*entry.offsets)[1];
    header.tensors.push_back(std::move(info));
  }
  if (end > data_bytes) {
    return fail(ErrorKind::truncated,
                fmt::format("safetensors header: the tensors need {} bytes of data, the file has {}", end, data_bytes));
  }
  if (end < data_bytes) {
    return fail(ErrorKind::corrupt,
                fmt::format("safetensors header: the tensors take {} bytes of data, the file has {}", end, data_bytes));
  }
  return header;
}

Result<std::string> make_safetensors_header(const SafetensorsHeader& header) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) {
    auto& metadata = json[std::string(kMetadataKey)] = nlohmann::ordered_json::object();
    for (const auto& [key, value] : header.metadata) metadata[key] = value;
  }
  std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::strict);
  text.pop_back();
  std::uint64_t offset = 0;
  for (const TensorInfo& info : header.tensors) {
    if (info.name == kMetadataKey) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("a tensor called {} cannot be written to a safetensors file", kMetadataKey));
    }
    // Written piece by piece: an object of 100,000 keys would be searched from its start for each of them.
    const nlohmann::ordered_json entry = {
        {"dtype", info.dtype_name}, {"shape", info.shape}, {"data_offsets", {offset, offset + info.size_bytes}}};
    if (text.size() > 1) text += ',';
    text += nlohmann::json(info.name).dump() + ':' + entry.dump();
    offset += info.size_bytes;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("a safetensors header of {} bytes is larger than the format's limit of {}", text.size(),
                            kMaxHeaderBytes));
  }
  return text;
}

}  // namespace bitsnap::interop
