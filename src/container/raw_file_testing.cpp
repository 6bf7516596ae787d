// Builds snapshot files, as far as possible without the code under test.
#include "container/raw_file_testing.hpp"

#include <array>
#include <cstring>

#include "base/hash.hpp"
#include "base/try.hpp"

namespace bitsnap::container {
namespace {

void append(Bytes& to, ConstByteSpan bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

template <typename T>
void append_number(Bytes& to, T number) {
  std::array<std::byte, sizeof(T)> bytes;
  store_le(bytes.data(), number);
  append(to, bytes);
}

Bytes chunk_table(const std::vector<ChunkEntry>& chunks) {
  Bytes table;
  for (const ChunkEntry& entry : chunks) {
    append_number(table, entry.offset);
    append_number(table, entry.stored_hash);
    append_number(table, entry.decoded_hash);
    append_number(table, entry.stored_bytes);
    append_number(table, entry.codec);
    append_number(table, entry.parameters);
    for (const std::uint8_t input : entry.inputs) append_number(table, input);
    append_number(table, std::uint32_t{entry.depth});
  }
  return table;
}

}  // namespace

Bytes bytes_of(std::string_view text) {
  const ConstByteSpan bytes = as_byte_span(text);
  return {bytes.begin(), bytes.end()};
}

Bytes join_sections(const std::vector<RawSection>& sections) {
  Bytes index;
  append_number(index, static_cast<std::uint32_t>(sections.size()));
  append_number(index, std::uint32_t{0});
  for (const RawSection& section : sections) {
    append_number(index, section.kind);
    append_number(index, section.encoding);
    append_number(index, std::uint64_t{section.stored.size()});
    append_number(index, section.raw_bytes);
  }
  for (const RawSection& section : sections) append(index, section.stored);
  return index;
}

Bytes join_file(ConstByteSpan payloads, ConstByteSpan index, const SnapshotId& id) {
  Bytes file;
  append(file, serialize_header());
  append(file, payloads);
  Footer footer;
  footer.index_offset = file.size();
  footer.index_bytes = index.size();
  footer.index_hash = hash64(index);
  footer.id = id;
  append(file, index);
  append(file, serialize_footer(footer));
  return file;
}

ChunkEntry& RawFile::add_chunk(std::uint16_t codec, ConstByteSpan payload, ConstByteSpan decoded) {
  ChunkEntry& entry = chunks.emplace_back();
  entry.codec = codec;
  entry.offset = payload.empty() ? 0 : kHeaderBytes + payloads.size();
  entry.stored_bytes = static_cast<std::uint32_t>(payload.size());
  entry.stored_hash = hash64(payload);
  entry.decoded_hash = hash64(decoded);
  append(payloads, payload);
  return entry;
}

SnapshotId RawFile::id() const {
  Bytes hashed = bytes_of(content);
  const std::string header = safetensors_header.value_or("");
  append_number(hashed, std::uint64_t{header.size()});
  append(hashed, as_byte_span(header));
  for (const ChunkEntry& entry : chunks) append_number(hashed, entry.decoded_hash);
  Hasher128 hasher;
  hasher.update(hashed);
  const Hash128 hash = hasher.digest();
  return SnapshotId{hash.low, hash.high};
}

std::vector<RawSection> RawFile::sections() const {
  std::vector<RawSection> sections;
  const auto add = [&](std::uint32_t kind, Bytes bytes) {
    const std::uint64_t size = bytes.size();
    sections.push_back(RawSection{kind, 0, std::move(bytes), size});
  };
  add(1, bytes_of(content));
  add(2, bytes_of(encoding));
  add(3, chunk_table(chunks));
  if (parameters) add(4, *parameters);
  if (safetensors_header) add(5, bytes_of(*safetensors_header));
  return sections;
}

void ReadLog::add(std::uint64_t offset, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  reads_.emplace_back(offset, size);
}

void ReadLog::clear() {
  const std::lock_guard lock(mutex_);
  reads_.clear();
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> ReadLog::reads() const {
  const std::lock_guard lock(mutex_);
  return reads_;
}

Result<void> MemoryFile::read_at(std::uint64_t offset, ByteSpan out) const {
  if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
    return fail(ErrorKind::truncated, path_ + ": read beyond the end");
  }
  if (log_) log_->add(offset, out.size());
  if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
  return {};
}

}  // namespace bitsnap::container
