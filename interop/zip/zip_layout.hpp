// Signatures, sizes and sentinels of the records of a ZIP archive (APPNOTE.TXT of PKWARE, sections 4.3 and 4.4).
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::interop {

inline constexpr std::uint32_t kZipLocalSignature = 0x04034b50;
inline constexpr std::uint32_t kZipDescriptorSignature = 0x08074b50;
inline constexpr std::uint32_t kZipEntrySignature = 0x02014b50;
inline constexpr std::uint32_t kZip64EndSignature = 0x06064b50;
inline constexpr std::uint32_t kZip64LocatorSignature = 0x07064b50;
inline constexpr std::uint32_t kZipEndSignature = 0x06054b50;

// Sizes without the names, extra fields and comments that follow.
inline constexpr std::size_t kZipLocalBytes = 30;
inline constexpr std::size_t kZipEntryBytes = 46;
inline constexpr std::size_t kZip64EndBytes = 56;
inline constexpr std::size_t kZip64LocatorBytes = 20;
inline constexpr std::size_t kZipEndBytes = 22;

// A field with this value is stated in a zip64 record or extra field.
inline constexpr std::uint16_t kZipIn64Short = 0xffff;
inline constexpr std::uint32_t kZipIn64 = 0xffffffff;

}  // namespace bitsnap::interop
