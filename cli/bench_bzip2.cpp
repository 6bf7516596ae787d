// bzip2 -9: slow, and for long the best general ratio on weights.
#include <bzlib.h>

#include "cli/bench_general.hpp"
#include "cli/file_paths.hpp"

namespace bitsnap::cli {

namespace {

constexpr int kLevel = 9;

class Bzip2State final : public ByteCoderState {
 public:
  Result<std::size_t> encode(std::span<const std::byte> in, std::span<std::byte> out) override {
    auto size = static_cast<unsigned>(out.size());
    if (BZ2_bzBuffToBuffCompress(reinterpret_cast<char*>(out.data()), &size, mutable_chars(in),
                                 static_cast<unsigned>(in.size()), kLevel, 0, 0) != BZ_OK) {
      return fail(ErrorKind::internal, "bzip2: encoding failed");
    }
    return size;
  }
  Result<void> decode(std::span<const std::byte> in, std::span<std::byte> out) override {
    auto size = static_cast<unsigned>(out.size());
    if (BZ2_bzBuffToBuffDecompress(reinterpret_cast<char*>(out.data()), &size, mutable_chars(in),
                                   static_cast<unsigned>(in.size()), 0, 0) != BZ_OK ||
        size != out.size()) {
      return fail(ErrorKind::internal, "bzip2: decoding failed");
    }
    return {};
  }

 private:
  // libbz2 reads its input only, but its interface is older than const.
  static char* mutable_chars(std::span<const std::byte> bytes) {
    return const_cast<char*>(reinterpret_cast<const char*>(bytes.data()));
  }
};

class Bzip2Coder final : public ByteCoder {
 public:
  std::string name() const override { return "bzip2-9"; }
  // As its manual states.
  std::size_t max_encoded_size(std::size_t bytes) const noexcept override { return bytes + bytes / 100 + 600; }
  std::unique_ptr<ByteCoderState> make_state() const override { return std::make_unique<Bzip2State>(); }
};

}  // namespace

std::shared_ptr<const ByteCoder> make_bzip2_coder() { return std::make_shared<Bzip2Coder>(); }

}  // namespace bitsnap::cli
