// Builds small snapshot files for tests; the test chooses the coding of every tensor. Owns the data. A builder that is
// the base of another must outlive that one's build().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/snapshot.hpp>

#include "codec/codec_id.hpp"
#include "container/index.hpp"
#include "container/raw_file_testing.hpp"
#include "os/file_system_fake.hpp"

namespace bitsnap::restore {

using container::Bytes;

// How all chunks of one stream are coded.
struct Coding {
  codec::CodecId codec = codec::CodecId::raw;
  std::vector<container::StreamInput> inputs = {};
  std::optional<std::uint8_t> depth = {};  // overrides the depth that follows from the inputs
  std::uint8_t rank = 0;                   // above the ranks of later streams that it depends on
};

class StateBuilder {
 public:
  // Each returns the tensor's index. The tensors have one dimension.
  std::size_t add(const std::string& name, DType dtype, Bytes data, Coding coding = {});
  std::size_t add_pooled(const std::string& name, DType dtype, const Bytes& data);
  std::size_t add_alias(const std::string& name, std::size_t of);
  void code_pool(Coding coding) { pool_coding_ = std::move(coding); }

  // Each returns the number of the base.
  std::uint32_t add_base(const StateBuilder& base, const std::string& name);
  std::uint32_t add_base(const SnapshotId& id, const std::string& name);

  void set_metadata(const std::string& key, const std::string& value) { index_.content.metadata = {{key, value}}; }
  void set_tree(const Value& tree) { index_.content.tree = serialize_value(tree).value(); }

  // Known before build(), from the content alone.
  [[nodiscard]] SnapshotId id() const;
  // The file.
  [[nodiscard]] Bytes build();

  // After build().
  [[nodiscard]] const container::Index& index() const noexcept { return index_; }
  [[nodiscard]] const Bytes& bytes_of(std::size_t tensor) const { return data_[tensor]; }

 private:
  [[nodiscard]] const Bytes& stream_bytes(std::size_t stream) const;
  [[nodiscard]] const Coding& stream_coding(std::size_t stream) const;
  void encode(std::size_t stream, std::uint64_t chunk, const Coding& coding, container::ChunkEntry& entry,
              Bytes& payloads);

  container::Index index_;
  std::vector<Bytes> data_;  // per tensor
  std::vector<Coding> codings_;
  Bytes pool_;
  Coding pool_coding_;
  std::vector<const StateBuilder*> bases_;  // nullptr: only its id is known
};

// The same bytes for the same seed.
[[nodiscard]] Bytes random_bytes(std::size_t size, std::uint64_t seed);

// For what is opened from memory and has no bases.
[[nodiscard]] os::FakeFileSystem& no_files();

// Provides the snapshots that it was given.
class MapBases final : public BaseProvider {
 public:
  void add(std::shared_ptr<const Base> base) { bases_.push_back(std::move(base)); }
  Result<std::shared_ptr<const Base>> find(const SnapshotId& id) const override;

 private:
  std::vector<std::shared_ptr<const Base>> bases_;
};

}  // namespace bitsnap::restore
