#include "interop/zip/zip_writer.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include <fmt/format.h>

#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "interop/zip/zip_checksums.hpp"

namespace bitsnap::interop {
namespace {

// Fields of the records, as torch's writer sets them: names are UTF-8, and sizes and checksum follow the contents.
constexpr std::uint16_t kFlags = 0x0808;
constexpr std::uint16_t kVersion = 20;
constexpr std::uint16_t kVersionOfZip64 = 45;
constexpr std::uint16_t kZip64Field = 1;
constexpr std::uint16_t kPaddingField = 0x4246;  // "FB"
constexpr std::uint64_t kAlignment = 64;
constexpr std::size_t kFieldHeaderBytes = 4;
constexpr std::uint32_t kStartOf1980 = 0x00210000;  // date above time

class Record {
 public:
  template <typename T>
  Record& add(T value) {
    std::array<std::byte, sizeof(T)> bytes{};
    store_le(bytes.data(), value);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Record& add(ConstByteSpan bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Record& zeros(std::size_t count) {
    bytes_.resize(bytes_.size() + count);
    return *this;
  }
  [[nodiscard]] ConstByteSpan bytes() const noexcept { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

Result<void> ZipWriter::write(ConstByteSpan bytes) {
  BITSNAP_TRY(sink_(bytes));
  at_ += bytes.size();
  return {};
}

Result<void> ZipWriter::begin(std::string name, std::uint64_t bytes) {
  BITSNAP_TRY(end());
  if (name.size() > std::numeric_limits<std::uint16_t>::max()) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("entry {}: its name is too long for a ZIP archive", quote_name(name.substr(0, 64))));
  }
  const bool is_large = bytes >= large_;
  const std::uint64_t large_bytes = is_large ? kFieldHeaderBytes + 2 * sizeof(std::uint64_t) : 0;
  const std::uint64_t contents = at_ + kZipLocalBytes + name.size() + large_bytes + kFieldHeaderBytes;
  const std::uint64_t padding = (kAlignment - contents % kAlignment) % kAlignment;
  Record local;
  local.add(kZipLocalSignature).add(is_large ? kVersionOfZip64 : kVersion).add(kFlags).zeros(2).add(kStartOf1980);
  local.zeros(4).add(is_large ? kZipIn64 : 0U).add(is_large ? kZipIn64 : 0U);
  local.add(static_cast<std::uint16_t>(name.size()));
  local.add(static_cast<std::uint16_t>(large_bytes + kFieldHeaderBytes + padding));
  local.add(as_byte_span(name));
  if (is_large) local.add(kZip64Field).add(std::uint16_t{16}).zeros(16);
  local.add(kPaddingField).add(static_cast<std::uint16_t>(padding)).zeros(static_cast<std::size_t>(padding));
  entries_.push_back({std::move(name), at_, bytes, 0});
  left_ = bytes;
  is_open_ = true;
  return write(local.bytes());
}

Result<void> ZipWriter::append(ConstByteSpan bytes) {
  if (bytes.size() > left_) return fail(ErrorKind::internal, "an entry of a ZIP archive has more bytes than stated");
  entries_.back().checksum = crc32(bytes, entries_.back().checksum);
  left_ -= bytes.size();
  return write(bytes);
}

Result<void> ZipWriter::add(std::string name, ConstByteSpan bytes) {
  BITSNAP_TRY(begin(std::move(name), bytes.size()));
  return append(bytes);
}

Result<void> ZipWriter::end() {
  if (!is_open_) return {};
  is_open_ = false;
  const Entry& entry = entries_.back();
  if (left_ > 0) return fail(ErrorKind::internal, "an entry of a ZIP archive has fewer bytes than stated");
  Record descriptor;
  descriptor.add(kZipDescriptorSignature).add(entry.checksum);
  if (entry.bytes >= large_) {
    descriptor.add(entry.bytes).add(entry.bytes);
  } else {
    descriptor.add(in_32_bits(entry.bytes)).add(in_32_bits(entry.bytes));
  }
  return write(descriptor.bytes());
}

Result<void> ZipWriter::finish() {
  BITSNAP_TRY(end());
  const std::uint64_t directory = at_;
  for (const Entry& entry : entries_) {
    const bool is_large = entry.bytes >= large_;
    const bool is_far = entry.offset >= large_;
    const auto extra = static_cast<std::uint16_t>((is_large ? 16U : 0U) + (is_far ? 8U : 0U));
    Record record;
    record.add(kZipEntrySignature).zeros(2).add(extra > 0 ? kVersionOfZip64 : kVersion).add(kFlags).zeros(2);
    record.add(kStartOf1980).add(entry.checksum).add(in_32_bits(entry.bytes)).add(in_32_bits(entry.bytes));
    record.add(static_cast<std::uint16_t>(entry.name.size()));
    record.add(static_cast<std::uint16_t>(extra > 0 ? extra + kFieldHeaderBytes : 0U));
    record.zeros(2 + 2 + 2 + 4).add(in_32_bits(entry.offset)).add(as_byte_span(entry.name));
    if (extra > 0) record.add(kZip64Field).add(extra);
    if (is_large) record.add(entry.bytes).add(entry.bytes);
    if (is_far) record.add(entry.offset);
    BITSNAP_TRY(write(record.bytes()));
  }
  const std::uint64_t directory_bytes = at_ - directory;
  const std::uint64_t count = entries_.size();
  const bool is_zip64 = count >= kZipIn64Short || directory >= large_ || directory_bytes >= large_;
  Record last;
  if (is_zip64) {
    last.add(kZip64EndSignature).add(std::uint64_t{kZip64EndBytes - 12}).zeros(2).add(kVersionOfZip64).zeros(8);
    last.add(count).add(count).add(directory_bytes).add(directory);
    last.add(kZip64LocatorSignature).zeros(4).add(at_).add(std::uint32_t{1});
  }
  const auto short_count = static_cast<std::uint16_t>(std::min<std::uint64_t>(count, kZipIn64Short));
  last.add(kZipEndSignature).zeros(4).add(short_count).add(short_count);
  last.add(in_32_bits(directory_bytes)).add(in_32_bits(directory)).zeros(2);
  return write(last.bytes());
}

}  // namespace bitsnap::interop
