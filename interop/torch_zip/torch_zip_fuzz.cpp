// Fuzz target: any bytes as a file of torch.save are refused, or their tensors are sorted, disjoint and in the file.
// What the pickle holds becomes a state whose tensors lie in the file, and which can be pickled again.
// After an even byte the input is an archive; after an odd one it is the pickle of an archive with two storages.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "interop/container/contents_testing.hpp"
#include "interop/container/file_bytes_testing.hpp"
#include "interop/pickle/pickle_reader.hpp"
#include "interop/pickle/pickle_writer.hpp"
#include "interop/torch_tensors/torch_pickle.hpp"
#include "interop/torch_zip/torch_zip.hpp"
#include "interop/zip/zip_testing.hpp"

namespace {

void check_state(const bitsnap::interop::FileBytes& bytes) {
  const auto state = bitsnap::interop::read_torch_zip_state(bytes, {});
  if (!state) return;
  for (const auto& tensor : state->tensors) {
    if (tensor.offset > bytes.size()) std::abort();
  }
  bitsnap::interop::PickleWriter out;
  const auto no_tensor = [](bitsnap::interop::PickleWriter& pickle, std::size_t) {
    pickle.none();
    return bitsnap::Result<void>();
  };
  if (!bitsnap::interop::push_value(out, state->tree, no_tensor)) return;
  if (const std::string text = out.finish(); !bitsnap::interop::read_pickle(text, {})) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string made;
  if (data[0] % 2 != 0) {
    made = bitsnap::interop::make_stored_zip(
        {{"x/data.pkl", std::string(input)}, {"x/data/0", std::string(64, 'e')}, {"x/data/1", std::string(16, 'f')}});
  }
  const std::string_view file = made.empty() ? input : made;
  const auto bytes = bitsnap::interop::bytes_in_memory(bitsnap::as_byte_span(file));
  check_state(bytes);
  const auto contents = bitsnap::interop::read_torch_zip(bytes, {});
  if (contents && !bitsnap::interop::find_misplaced(*contents, file.size()).empty()) std::abort();
  return 0;
}
