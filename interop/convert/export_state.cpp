// Writes a training state as a file or folder of another format, which appears complete or not at all.
#include <string>

#include <bitsnap/convert.hpp>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "interop/convert/tensor_stream.hpp"
#include "os/atomic_directory.hpp"
#include "os/atomic_file.hpp"

namespace bitsnap {
namespace {

using interop::TensorStream;

template <typename Write>
Result<ExportSummary> write_file(const std::string& path, bool overwrite, const Write& write) {
  BITSNAP_ASSIGN(os::AtomicFile file, os::AtomicFile::create(os::real_file_system(), path, overwrite));
  BITSNAP_ASSIGN(const std::uint64_t bytes, write([&file](ConstByteSpan piece) { return file.file().append(piece); }));
  BITSNAP_TRY(file.commit());
  return ExportSummary{bytes};
}

template <typename Write>
Result<ExportSummary> write_folder(const std::string& path, const Write& write) {
  BITSNAP_ASSIGN(os::AtomicDirectory folder, os::AtomicDirectory::create(path));
  BITSNAP_ASSIGN(const std::uint64_t bytes, write(folder.temporary_path()));
  BITSNAP_TRY(folder.sync());
  BITSNAP_TRY(folder.commit());
  return ExportSummary{bytes};
}

}  // namespace

std::string_view state_format_name(StateFormat format) noexcept {
  switch (format) {
    case StateFormat::safetensors: return "safetensors";
    case StateFormat::torch: return "torch";
    case StateFormat::dcp: break;
  }
  return "dcp";
}

Result<ExportSummary> export_state(const State& state, StateFormat format, const std::string& path,
                                   const ExportOptions& options) {
  return no_throw("converting", [&]() -> Result<ExportSummary> {
    std::uint64_t total = 0;
    for (const TensorSource& tensor : state.tensors) total += tensor.info.size_bytes;
    TensorStream tensors(options.run, total);
    switch (format) {
      case StateFormat::safetensors:
        if (options.max_file_bytes > 0) {
          return write_folder(path, [&](const std::string& folder) {
            return interop::write_safetensors_folder(state, options.max_file_bytes, tensors, folder);
          });
        }
        return write_file(path, options.overwrite, [&](const TensorStream::Sink& sink) {
          return interop::write_safetensors_file(state, tensors, sink);
        });
      case StateFormat::torch:
        return write_file(path, options.overwrite, [&](const TensorStream::Sink& sink) {
          return interop::write_torch_file(state, tensors, sink);
        });
      case StateFormat::dcp: break;
    }
    return write_folder(path,
                        [&](const std::string& folder) { return interop::write_dcp_folder(state, tensors, folder); });
  });
}

}  // namespace bitsnap
