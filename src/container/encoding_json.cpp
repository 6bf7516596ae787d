// The encoding section, read and written by tables of fields. docs/spec/snapshot.md, "Encoding". Unknown keys are
// skipped: tensors can be read without them.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "base/utf8.hpp"
#include "container/directory.hpp"
#include "container/layout.hpp"
#include "container/quantizer_json.hpp"
#include "json/json_fields.hpp"

namespace bitsnap::container {
namespace {

using json::json_field;
using json::JsonDefault;
using json::JsonNeed;
using json::JsonReader;
using json::JsonWriter;

// An encoding with what bounds it while it is read.
struct EncodingDraft : Encoding {
  std::size_t stream_count = 0;
  const DecodeLimits* limits = nullptr;
};

// Text that only people read: if it is not UTF-8, its bytes beyond ASCII are written as question marks.
struct RemarkFormat : JsonDefault {
  static void write(JsonWriter& out, const std::string& from) {
    std::string text = from;
    if (!is_utf8(text)) {
      std::ranges::replace_if(text, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
    }
    out.string(text);
  }
};

struct InputsFormat : JsonDefault {
  static Result<void> read(JsonReader& in, std::vector<StreamInput>& to) {
    return json::read_json_list(in, to, json::read_json<StreamInput>,
                                {.item = "input", .items = "inputs", .most = kNoInput});
  }
};

struct ParametersFormat : JsonDefault {
  static Result<void> read(JsonReader& in, std::vector<std::uint32_t>& to) {
    return json::read_json_list(in, to, json::read_json<std::uint32_t>,
                                {.item = "entry", .items = "parameter sets", .most = kNoParameters});
  }
};

struct QuantizerFormat {
  static Result<void> read(JsonReader& in, std::optional<LossReport>& to) { return read_quantizer(in, to.emplace()); }
  static void write(JsonWriter& out, const std::optional<LossReport>& from) { write_quantizer(out, *from); }
};

}  // namespace

}  // namespace bitsnap::container

namespace bitsnap {

static constexpr auto json_fields(std::type_identity<BaseReference>) {
  using json::json_field;
  return std::array{json_field<&BaseReference::id>("id"),
                    json_field<&BaseReference::name, container::RemarkFormat>("name", json::JsonNeed::defaulted)};
}

}  // namespace bitsnap

namespace bitsnap::container {

static constexpr auto json_fields(std::type_identity<StreamInput>) {
  return std::array{json_field<&StreamInput::base>("base", JsonNeed::optional),
                    json_field<&StreamInput::stream>("stream"), json_field<&StreamInput::element>("element")};
}

static constexpr auto json_fields(std::type_identity<StreamEncoding>) {
  using Stream = StreamEncoding;
  return std::array{json_field<&Stream::rank>("rank", JsonNeed::optional),
                    json_field<&Stream::inputs, InputsFormat>("inputs", JsonNeed::optional),
                    json_field<&Stream::parameters, ParametersFormat>("parameters", JsonNeed::optional),
                    json_field<&Stream::reason, RemarkFormat>("reason", JsonNeed::optional),
                    json_field<&Stream::quantizer, QuantizerFormat>("quantizer", JsonNeed::optional)};
}

static constexpr auto json_fields(std::type_identity<EncodingDraft>) {
  using Draft = EncodingDraft;
  auto bases = json_field<&Encoding::bases, JsonDefault, Draft>("bases", JsonNeed::optional);
  bases.read = [](JsonReader& in, Draft& to) {
    return json::read_json_list(
        in, to.bases, json::read_json<BaseReference>,
        {.item = "base", .items = "bases", .most = to.limits->bases, .too_many = ErrorKind::resource_exhausted});
  };
  auto streams = json_field<&Encoding::streams, JsonDefault, Draft>("streams", JsonNeed::defaulted);
  streams.read = [](JsonReader& in, Draft& to) {
    return json::read_json_list(in, to.streams, json::read_json<StreamEncoding>,
                                {.item = "stream", .items = "streams", .most = to.stream_count});
  };
  return std::array{json_field<&Encoding::writer, RemarkFormat, Draft>("writer", JsonNeed::defaulted),
                    json_field<&Encoding::policy, RemarkFormat, Draft>("policy", JsonNeed::defaulted),
                    json_field<&Encoding::objective, RemarkFormat, Draft>("objective", JsonNeed::optional),
                    bases,
                    json_field<&Encoding::parameter_bytes, ParametersFormat, Draft>("parameters", JsonNeed::optional),
                    streams};
}

namespace {

// Whether `stream` is decoded before stream `other`: it has a lower rank, or the same rank and a lower number.
bool comes_before(const Encoding& encoding, std::uint64_t stream, std::size_t other) noexcept {
  if (stream >= encoding.streams.size()) return false;
  const unsigned rank = encoding.streams[static_cast<std::size_t>(stream)].rank;
  const unsigned other_rank = encoding.streams[other].rank;
  return rank < other_rank || (rank == other_rank && stream < other);
}

// Indices into the lists of bases, streams and parameter sets, which may come after the streams in the text.
Result<void> check_stream(const Encoding& encoding, std::size_t number) {
  const StreamEncoding& stream = encoding.streams[number];
  for (const StreamInput& input : stream.inputs) {
    if (input.base && *input.base >= encoding.bases.size()) {
      return fail(ErrorKind::corrupt, fmt::format("stream {}: an input refers to base {}, the file has {} bases",
                                                  number, *input.base, encoding.bases.size()));
    }
    if (!input.base && !comes_before(encoding, input.stream, number)) {
      return fail(
          ErrorKind::corrupt,
          fmt::format(
              "stream {}: an input refers to stream {}, expected an earlier stream in the order of rank and number",
              number, input.stream));
    }
  }
  for (const std::uint32_t index : stream.parameters) {
    if (index >= encoding.parameter_bytes.size()) {
      return fail(ErrorKind::corrupt, fmt::format("stream {}: refers to parameter set {}, the file has {} sets", number,
                                                  index, encoding.parameter_bytes.size()));
    }
  }
  return {};
}

Result<Encoding> read_encoding(JsonReader& in, std::size_t stream_count, const DecodeLimits& limits) {
  EncodingDraft draft;
  draft.stream_count = stream_count;
  draft.limits = &limits;
  BITSNAP_TRY(json::read_json(in, draft));
  if (draft.streams.size() != stream_count) {
    return fail(ErrorKind::corrupt, fmt::format("'streams' has {} entries, the content has {} streams",
                                                draft.streams.size(), stream_count));
  }
  std::vector<SnapshotId> ids;
  for (const BaseReference& base : draft.bases) ids.push_back(base.id);
  std::ranges::sort(ids);
  if (const auto twice = std::ranges::adjacent_find(ids); twice != ids.end()) {
    return fail(ErrorKind::corrupt, fmt::format("base {} appears twice", twice->to_hex()));
  }
  for (std::size_t i = 0; i < draft.streams.size(); ++i) BITSNAP_TRY(check_stream(draft, i));
  return Encoding(std::move(draft));
}

}  // namespace

Result<Encoding> parse_encoding(std::string_view json, std::size_t stream_count, const DecodeLimits& limits) {
  return no_throw("encoding", [&]() -> Result<Encoding> {
    auto encoding =
        json::read_whole_json(json, [&](JsonReader& in) { return read_encoding(in, stream_count, limits); });
    if (encoding) return encoding;
    return tl::unexpected(std::move(encoding).error().within("encoding"));
  });
}

std::string serialize_encoding(const Encoding& encoding) {
  EncodingDraft draft;
  static_cast<Encoding&>(draft) = encoding;
  return json::serialize_json(draft, json::JsonEscapes::without_b_and_f);
}

}  // namespace bitsnap::container
