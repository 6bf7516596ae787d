// Reading a file, in this order: size, header, footer, bounds, index; then payloads.
#include "container/file_reader.hpp"

#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/hash.hpp"
#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "container/file_limits.hpp"
#include "container/section.hpp"

namespace bitsnap::container {
namespace {

Result<Footer> read_frame(const os::RandomAccessFile& file) {
  const std::uint64_t size = file.size_bytes();
  std::array<std::byte, kHeaderBytes> header;
  if (size >= kHeaderBytes) {
    BITSNAP_TRY(file.read_at(0, header));
    BITSNAP_TRY(parse_header(header));
  }
  if (size < kHeaderBytes + kFooterBytes) {
    return fail(ErrorKind::truncated, fmt::format("the file has {} bytes, header and footer alone take {}", size,
                                                  kHeaderBytes + kFooterBytes));
  }
  std::array<std::byte, kFooterBytes> footer;
  BITSNAP_TRY(file.read_at(size - kFooterBytes, footer));
  return parse_footer(footer, size);
}

Result<std::vector<std::byte>> read_index_bytes(const os::RandomAccessFile& file, const DecodeLimits& limits,
                                                const Footer& footer) {
  if (footer.index_bytes > limits.index_bytes) {
    return fail(ErrorKind::resource_exhausted,
                fmt::format("index of {} bytes exceeds the limit of {} bytes", footer.index_bytes, limits.index_bytes));
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(footer.index_bytes));
  BITSNAP_TRY(file.read_at(footer.index_offset, bytes));
  return bytes;
}

Result<Index> read_index(const os::RandomAccessFile& file, const DecodeLimits& limits, Footer& footer) {
  BITSNAP_ASSIGN(footer, read_frame(file));
  BITSNAP_ASSIGN(const std::vector<std::byte> bytes, read_index_bytes(file, limits, footer));
  Result<Index> index = parse_index(bytes, footer, limits);
  if (index) return index;
  return tl::unexpected(with_remedy(std::move(index).error(), file.size_bytes(), limits));
}

}  // namespace

Result<std::unique_ptr<FileReader>> FileReader::open(std::unique_ptr<os::RandomAccessFile> file,
                                                     const DecodeLimits& limits) {
  return no_throw("snapshot", [&]() -> Result<std::unique_ptr<FileReader>> {
    Footer footer;
    Result<Index> index = read_index(*file, limits, footer);
    if (!index) return tl::unexpected(std::move(index).error().within(file->path()));
    std::unique_ptr<FileReader> reader(new FileReader());
    reader->footer_ = footer;
    reader->file_bytes_ = file->size_bytes();
    reader->file_ = std::move(file);
    reader->index_ = std::move(*index);
    return reader;
  });
}

Result<void> FileReader::read_payload(const ChunkEntry& entry, ByteSpan out) const {
  if (out.size() != entry.stored_bytes) {
    return fail(ErrorKind::internal,
                fmt::format("payload of {} bytes read into a buffer of {} bytes", entry.stored_bytes, out.size()));
  }
  if (!out.empty()) BITSNAP_TRY(file_->read_at(entry.offset, out));
  if (const std::uint64_t hash = hash64(out); hash != entry.stored_hash) {
    return fail(ErrorKind::corrupt, fmt::format("payload of {} bytes at {}: hash is {:016x}, expected {:016x}",
                                                entry.stored_bytes, entry.offset, hash, entry.stored_hash));
  }
  return {};
}

Result<std::string> FileReader::read_content_text(const DecodeLimits& limits) const {
  return no_throw("snapshot", [&]() -> Result<std::string> {
    const auto read = [&]() -> Result<std::string> {
      BITSNAP_ASSIGN(const std::vector<std::byte> bytes, read_index_bytes(*file_, limits, footer_));
      if (const std::uint64_t hash = hash64(bytes); hash != footer_.index_hash) {
        return fail(ErrorKind::corrupt,
                    fmt::format("index: hash is {:016x}, expected {:016x}", hash, footer_.index_hash));
      }
      BITSNAP_ASSIGN(const Sections sections, unpack_sections(bytes, limits));
      return std::string(as_text(*sections.at(SectionKind::content)));
    };
    Result<std::string> text = read();
    if (text) return text;
    return tl::unexpected(std::move(text).error().within(file_->path()));
  });
}

Result<std::optional<Value>> FileReader::tree(const DecodeLimits& limits) const {
  Result<std::optional<Value>> tree = tree_of(index_, file_bytes_, limits);
  if (tree) return tree;
  return tl::unexpected(with_remedy(std::move(tree).error(), file_bytes_, limits).within(file_->path()));
}

Result<Footer> read_footer(const os::RandomAccessFile& file) {
  return no_throw("snapshot", [&]() -> Result<Footer> {
    Result<Footer> footer = read_frame(file);
    if (footer) return footer;
    return tl::unexpected(std::move(footer).error().within(file.path()));
  });
}

}  // namespace bitsnap::container
