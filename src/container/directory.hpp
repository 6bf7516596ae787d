// The two JSON sections of the index as plain data: docs/spec/snapshot.md, "Content" and "Encoding".
//
// parse_* accept only what the document allows, within the limits; errors name tensor and key. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/quantization.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/tensor.hpp>

namespace bitsnap::container {

// Finds tensors by name: their numbers in the order of the hashes of their names, then of the names. No choice of names
// makes it slow.
class NameIndex {
 public:
  NameIndex() = default;
  // Precondition: fewer than 2^32 tensors.
  explicit NameIndex(std::span<const TensorInfo> tensors);

  // `tensors`: those that it was made from, here and below.
  [[nodiscard]] std::optional<std::size_t> find(std::span<const TensorInfo> tensors,
                                                std::string_view name) const noexcept;
  // A tensor whose name another one has, too.
  [[nodiscard]] std::optional<std::size_t> find_duplicate(std::span<const TensorInfo> tensors) const noexcept;

 private:
  std::vector<std::uint64_t> entries_;  // 32 bits of the name's hash, then the number of the tensor
};

struct Content {
  std::vector<TensorInfo> tensors;
  std::vector<std::optional<std::uint64_t>> pool_offsets;  // one per tensor
  std::uint64_t pool_bytes = 0;                            // 0: no pool
  std::vector<std::pair<std::string, std::string>> metadata;
  std::optional<std::string>
      tree;              // JSON of docs/spec/typed_tree.md; parse_content() leaves checking it to parse_tree()
  NameIndex names = {};  // set by parse_content(), and by what lays out a state
};

// The streams that the content implies, in order, and for each tensor its stream.
struct StreamTable {
  std::vector<StreamInfo> streams;
  std::vector<std::optional<std::size_t>> stream_of;  // per tensor; nullopt: empty, pooled or an alias
  std::vector<std::uint64_t> first_chunk;             // per stream, and the total at the end
  std::optional<std::size_t> pool;

  // The stream of a chunk, by the chunk's number in the file.
  [[nodiscard]] std::size_t stream_of_chunk(std::uint64_t number) const noexcept;
};

// A stream, in this file or a base, that chunks of another stream are coded against.
struct StreamInput {
  std::optional<std::uint32_t> base;  // index into the table of bases; nullopt: this file
  std::uint64_t stream = 0;           // number in that snapshot
  std::uint64_t element = 0;          // the element that corresponds to element 0 of the stream that has this input

  friend bool operator==(const StreamInput&, const StreamInput&) = default;
};

struct StreamEncoding {
  std::vector<StreamInput> inputs;
  std::vector<std::uint32_t> parameters;  // into the parameter sets
  std::string reason;
  // Inputs in this file are streams that come before this one: of a lower rank, or of the same rank and a lower number.
  std::uint8_t rank = 0;
  std::optional<LossReport> quantizer = {};  // the loss before it was stored
};

struct Encoding {
  std::string writer;
  std::string policy;
  std::string objective;  // empty: unknown
  std::vector<BaseReference> bases;
  std::vector<std::uint32_t> parameter_bytes;  // size of each parameter set
  std::vector<StreamEncoding> streams;
};

[[nodiscard]] Result<std::string> serialize_content(const Content& content);
// The same in two steps, for contents that differ in metadata and tree only: `tensors` is the text of the tensors.
[[nodiscard]] Result<std::string> serialize_tensors(const Content& content);
[[nodiscard]] Result<std::string> serialize_content(const Content& content, std::string_view tensors);
[[nodiscard]] Result<Content> parse_content(std::string_view json, const DecodeLimits& limits);

[[nodiscard]] std::string serialize_encoding(const Encoding& encoding);
[[nodiscard]] Result<Encoding> parse_encoding(std::string_view json, std::size_t stream_count,
                                              const DecodeLimits& limits);

// Precondition: the content passed parse_content or obeys its rules. corrupt if the sizes overflow.
[[nodiscard]] Result<StreamTable> derive_streams(const Content& content);

}  // namespace bitsnap::container
