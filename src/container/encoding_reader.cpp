// parse_encoding(): the encoding section. docs/spec/snapshot.md, "Encoding". Keys it does not know are passed over.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "container/directory.hpp"
#include "container/json_reader.hpp"
#include "container/json_text.hpp"
#include "container/layout.hpp"
#include "container/quantizer_json.hpp"

namespace bitsnap::container {
namespace {

using Type = JsonToken::Type;

class EncodingSink final : public JsonSink {
 public:
  EncodingSink(std::size_t stream_count, const DecodeLimits& limits) : stream_count_(stream_count), limits_(limits) {}

  Result<void> take(JsonToken& token) override {
    Result<void> taken = skipped_ > 0 || skips_value_ ? skip(token) : step(token);
    if (taken) return taken;
    return tl::unexpected(std::move(taken).error().within(place()));
  }

  // To be called once the JSON has ended.
  Result<Encoding> finish() {
    if (encoding_.streams.size() != stream_count_) {
      return fail(ErrorKind::corrupt, fmt::format("'streams' has {} entries, the content has {} streams",
                                                  encoding_.streams.size(), stream_count_));
    }
    std::vector<SnapshotId> ids;
    for (const BaseReference& base : encoding_.bases) ids.push_back(base.id);
    std::sort(ids.begin(), ids.end());
    if (const auto twice = std::adjacent_find(ids.begin(), ids.end()); twice != ids.end()) {
      return fail(ErrorKind::corrupt, fmt::format("base {} stands twice", twice->to_hex()));
    }
    for (std::size_t i = 0; i < encoding_.streams.size(); ++i) BITSNAP_TRY(check_stream(i));
    return std::move(encoding_);
  }

 private:
  enum class State : std::uint8_t {
    before,
    top,
    bases,
    base,
    parameter_bytes,
    streams,
    stream,
    inputs,
    input,
    stream_parameters,
    quantizer,
  };

  Result<void> step(JsonToken& token) {
    switch (state_) {
      case State::before:
        if (!token.is(Type::begin_object)) return tl::unexpected(unexpected_token("an object", token));
        state_ = State::top;
        return {};
      case State::top: return take_top(token);
      case State::bases: return take_bases(token);
      case State::base: return take_base(token);
      case State::parameter_bytes: return take_parameter_bytes(token);
      case State::streams: return take_streams(token);
      case State::stream: return take_stream(token);
      case State::inputs: return take_inputs(token);
      case State::input: return take_input(token);
      case State::stream_parameters: return take_stream_parameters(token);
      case State::quantizer: return take_quantizer(token);
    }
    return {};
  }

  // A value that belongs to an unknown key, however large.
  Result<void> skip(JsonToken& token) {
    skips_value_ = false;
    if (token.is(Type::begin_array) || token.is(Type::begin_object)) ++skipped_;
    if (token.is(Type::end_array) || token.is(Type::end_object)) --skipped_;
    return {};
  }

  template <std::size_t kCount>
  void take_key(JsonToken& token, const std::string_view (&known)[kCount]) {
    key_ = std::move(token.text);
    skips_value_ = std::find(std::begin(known), std::end(known), key_) == std::end(known);
  }

  Result<void> take_top(JsonToken& token) {
    if (token.is(Type::end_object)) return {};
    if (token.is(Type::key)) {
      take_key(token, {"writer", "policy", "objective", "bases", "parameters", "streams"});
      return {};
    }
    if (key_ == "writer") return take_text(token, encoding_.writer);
    if (key_ == "policy") return take_text(token, encoding_.policy);
    if (key_ == "objective") return take_text(token, encoding_.objective);
    return open_list(token, key_ == "bases"        ? State::bases
                            : key_ == "parameters" ? State::parameter_bytes
                                                   : State::streams);
  }

  Result<void> take_bases(JsonToken& token) {
    if (token.is(Type::end_array)) return go(State::top);
    if (!token.is(Type::begin_object)) return tl::unexpected(unexpected_token("a base's entry", token));
    if (encoding_.bases.size() >= limits_.bases) {
      return fail(ErrorKind::resource_exhausted, fmt::format("more bases than the limit of {}", limits_.bases));
    }
    encoding_.bases.emplace_back();
    has_base_id_ = false;
    return go(State::base);
  }

  Result<void> take_base(JsonToken& token) {
    if (token.is(Type::end_object)) {
      if (!has_base_id_) return fail(ErrorKind::corrupt, "key 'id' is missing");
      return go(State::bases);
    }
    if (token.is(Type::key)) {
      take_key(token, {"id", "name"});
      return {};
    }
    BaseReference& base = encoding_.bases.back();
    if (key_ == "name") return take_text(token, base.name);
    std::string text;
    BITSNAP_TRY(take_text(token, text));
    const std::optional<SnapshotId> id = SnapshotId::from_hex(text);
    if (!id)
      return fail(ErrorKind::corrupt, fmt::format("id {} is not 32 lower-case hexadecimal digits", quote_name(text)));
    base.id = *id;
    has_base_id_ = true;
    return {};
  }

  Result<void> take_parameter_bytes(JsonToken& token) {
    if (token.is(Type::end_array)) return go(State::top);
    std::uint64_t size = 0;
    BITSNAP_TRY(take_number(token, size, std::numeric_limits<std::uint32_t>::max()));
    if (encoding_.parameter_bytes.size() >= kNoParameters) {
      return fail(ErrorKind::corrupt, fmt::format("more than {} parameter sets", kNoParameters));
    }
    encoding_.parameter_bytes.push_back(static_cast<std::uint32_t>(size));
    return {};
  }

  Result<void> take_streams(JsonToken& token) {
    if (token.is(Type::end_array)) return go(State::top);
    if (!token.is(Type::begin_object)) return tl::unexpected(unexpected_token("a stream's entry", token));
    if (encoding_.streams.size() >= stream_count_) {
      return fail(ErrorKind::corrupt,
                  fmt::format("'streams' has more entries than the {} of the content", stream_count_));
    }
    encoding_.streams.emplace_back();
    return go(State::stream);
  }

  Result<void> take_stream(JsonToken& token) {
    if (token.is(Type::end_object)) return go(State::streams);
    if (token.is(Type::key)) {
      take_key(token, {"rank", "inputs", "parameters", "reason", "quantizer"});
      return {};
    }
    if (key_ == "rank") {
      std::uint64_t rank = 0;
      BITSNAP_TRY(take_number(token, rank, std::numeric_limits<std::uint8_t>::max()));
      encoding_.streams.back().rank = static_cast<std::uint8_t>(rank);
      return {};
    }
    if (key_ == "reason") return take_text(token, encoding_.streams.back().reason);
    if (key_ == "quantizer") {
      if (!token.is(Type::begin_object)) return tl::unexpected(unexpected_token("an object as 'quantizer'", token));
      quantizer_ = {};
      return go(State::quantizer);
    }
    return open_list(token, key_ == "inputs" ? State::inputs : State::stream_parameters);
  }

  Result<void> take_inputs(JsonToken& token) {
    if (token.is(Type::end_array)) return go(State::stream);
    if (!token.is(Type::begin_object)) return tl::unexpected(unexpected_token("an input's entry", token));
    std::vector<StreamInput>& inputs = encoding_.streams.back().inputs;
    if (inputs.size() >= kNoInput) return fail(ErrorKind::corrupt, fmt::format("more than {} inputs", kNoInput));
    inputs.emplace_back();
    has_stream_ = false;
    has_element_ = false;
    return go(State::input);
  }

  Result<void> take_input(JsonToken& token) {
    if (token.is(Type::end_object)) {
      if (!has_stream_ || !has_element_) {
        return fail(ErrorKind::corrupt, fmt::format("key '{}' is missing", has_stream_ ? "element" : "stream"));
      }
      return go(State::inputs);
    }
    if (token.is(Type::key)) {
      take_key(token, {"base", "stream", "element"});
      return {};
    }
    StreamInput& input = encoding_.streams.back().inputs.back();
    if (key_ == "base") {
      std::uint64_t base = 0;
      BITSNAP_TRY(take_number(token, base, std::numeric_limits<std::uint32_t>::max()));
      input.base = static_cast<std::uint32_t>(base);
      return {};
    }
    bool& has = key_ == "stream" ? has_stream_ : has_element_;
    has = true;
    return take_number(token, key_ == "stream" ? input.stream : input.element,
                       std::numeric_limits<std::uint64_t>::max());
  }

  Result<void> take_stream_parameters(JsonToken& token) {
    if (token.is(Type::end_array)) return go(State::stream);
    std::vector<std::uint32_t>& parameters = encoding_.streams.back().parameters;
    std::uint64_t index = 0;
    BITSNAP_TRY(take_number(token, index, std::numeric_limits<std::uint32_t>::max()));
    if (parameters.size() >= kNoParameters) {
      return fail(ErrorKind::corrupt, fmt::format("more than {} parameter sets", kNoParameters));
    }
    parameters.push_back(static_cast<std::uint32_t>(index));
    return {};
  }

  Result<void> take_quantizer(JsonToken& token) {
    BITSNAP_ASSIGN(const bool has_ended, quantizer_.take(token));
    if (!has_ended) return {};
    encoding_.streams.back().quantizer = quantizer_.record();
    return go(State::stream);
  }

  // What needs the table of bases and the parameter sets, which may stand after the streams.
  [[nodiscard]] Result<void> check_stream(std::size_t number) const {
    const StreamEncoding& stream = encoding_.streams[number];
    for (const StreamInput& input : stream.inputs) {
      if (input.base && *input.base >= encoding_.bases.size()) {
        return fail(ErrorKind::corrupt, fmt::format("stream {}: an input names base {} of {}", number, *input.base,
                                                    encoding_.bases.size()));
      }
      if (!input.base && !comes_before(input.stream, number)) {
        return fail(ErrorKind::corrupt, fmt::format("stream {}: an input names stream {}, expected one before it by "
                                                    "rank and number",
                                                    number, input.stream));
      }
    }
    for (const std::uint32_t index : stream.parameters) {
      if (index >= encoding_.parameter_bytes.size()) {
        return fail(ErrorKind::corrupt, fmt::format("stream {}: names parameter set {} of {}", number, index,
                                                    encoding_.parameter_bytes.size()));
      }
    }
    return {};
  }

  [[nodiscard]] bool comes_before(std::uint64_t stream, std::size_t other) const noexcept {
    if (stream >= encoding_.streams.size()) return false;
    const unsigned rank = encoding_.streams[static_cast<std::size_t>(stream)].rank;
    const unsigned other_rank = encoding_.streams[other].rank;
    return rank < other_rank || (rank == other_rank && stream < other);
  }

  Result<void> go(State state) {
    state_ = state;
    return {};
  }

  Result<void> open_list(const JsonToken& token, State state) {
    if (!token.is(Type::begin_array)) return tl::unexpected(unexpected_token("an array as " + quote_name(key_), token));
    return go(state);
  }

  Result<void> take_text(JsonToken& token, std::string& to) const {
    if (!token.is(Type::string)) return tl::unexpected(unexpected_token("a string as " + quote_name(key_), token));
    to = std::move(token.text);
    return {};
  }

  Result<void> take_number(const JsonToken& token, std::uint64_t& to, std::uint64_t largest) const {
    if (!token.is_unsigned() || token.magnitude > largest) {
      return tl::unexpected(
          unexpected_token(fmt::format("an integer from 0 to {} in {}", largest, quote_name(key_)), token));
    }
    to = token.magnitude;
    return {};
  }

  [[nodiscard]] std::string place() const {
    switch (state_) {
      case State::base: return fmt::format("base {}", encoding_.bases.size() - 1);
      case State::stream:
      case State::inputs:
      case State::input:
      case State::quantizer:
      case State::stream_parameters: return fmt::format("stream {}", encoding_.streams.size() - 1);
      default: return fmt::format("key {}", quote_name(key_));
    }
  }

  const std::size_t stream_count_;
  const DecodeLimits& limits_;
  State state_ = State::before;
  std::string key_;
  bool skips_value_ = false;  // the value of key_ is passed over
  std::size_t skipped_ = 0;   // arrays and objects that are open within it
  bool has_base_id_ = false;  // of the entry that is open
  bool has_stream_ = false;
  bool has_element_ = false;
  QuantizerReader quantizer_;
  Encoding encoding_;
};

}  // namespace

Result<Encoding> parse_encoding(std::string_view json, std::size_t stream_count, const DecodeLimits& limits) {
  return no_throw("encoding", [&]() -> Result<Encoding> {
    EncodingSink sink(stream_count, limits);
    Result<void> read = read_json(json, sink);
    Result<Encoding> encoding = read ? sink.finish() : tl::unexpected(std::move(read).error());
    if (encoding) return encoding;
    return tl::unexpected(std::move(encoding).error().within("encoding"));
  });
}

}  // namespace bitsnap::container
