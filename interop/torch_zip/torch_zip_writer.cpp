#include "interop/torch_zip/torch_zip_writer.hpp"

#include "base/bytes.hpp"
#include "base/try.hpp"

namespace bitsnap::interop {

Result<std::uint64_t> write_torch_zip(const std::string& pickle, std::span<const std::uint64_t> storage_bytes,
                                      const WriteStorage& write, const ZipWriter::Sink& sink) {
  ZipWriter zip(sink);
  BITSNAP_TRY(zip.add("archive/data.pkl", as_byte_span(pickle)));
  BITSNAP_TRY(zip.add("archive/.format_version", as_byte_span("1")));
  BITSNAP_TRY(zip.add("archive/.storage_alignment", as_byte_span("64")));
  BITSNAP_TRY(zip.add("archive/byteorder", as_byte_span("little")));
  for (std::size_t i = 0; i < storage_bytes.size(); ++i) {
    BITSNAP_TRY(zip.begin("archive/data/" + std::to_string(i), storage_bytes[i]));
    BITSNAP_TRY(write(i, [&zip](ConstByteSpan bytes) { return zip.append(bytes); }));
  }
  BITSNAP_TRY(zip.add("archive/version", as_byte_span("3\n")));
  BITSNAP_TRY(zip.finish());
  return zip.size_bytes();
}

}  // namespace bitsnap::interop
