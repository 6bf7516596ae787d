// Writes a training state as a file or folder of another format, which appears complete or not at all.
#include <string>

#include <bitsnap/convert.hpp>

#include "base/bytes.hpp"
#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "interop/convert/tensor_stream.hpp"
#include "os/atomic_directory.hpp"
#include "os/atomic_file.hpp"
#include "os/file_system.hpp"

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

std::uint64_t bytes_of(const State& state) {
  std::uint64_t total = 0;
  for (const TensorSource& tensor : state.tensors) total += tensor.info.size_bytes;
  return total;
}

// The tensors in as many files as they need, and the other files of a model.
Result<std::uint64_t> write_model(const State& state, const ExportOptions& options, TensorStream& tensors,
                                  const std::string& folder) {
  std::uint64_t bytes = 0;
  const auto write = [&](const std::string& name, const auto& content) -> Result<void> {
    BITSNAP_ASSIGN(const auto file, os::real_file_system().create(folder + "/" + name));
    BITSNAP_ASSIGN(const std::uint64_t written, content([&file](ConstByteSpan piece) { return file->append(piece); }));
    bytes += written;
    return file->close();
  };
  if (options.max_file_bytes > 0 && bytes_of(state) > options.max_file_bytes) {
    BITSNAP_ASSIGN(bytes, interop::write_safetensors_folder(state, options.max_file_bytes, tensors, folder));
  } else {
    const auto weights = [&](const TensorStream::Sink& sink) {
      return interop::write_safetensors_file(state, tensors, sink);
    };
    BITSNAP_TRY(write("model.safetensors", weights));
  }
  for (const auto& file : options.files) {
    const std::string& text = file.second;
    const auto content = [&text](const TensorStream::Sink& sink) {
      return sink(as_byte_span(text)).map([&text] { return std::uint64_t{text.size()}; });
    };
    BITSNAP_TRY(write(file.first, content));
  }
  return bytes;
}

}  // namespace

std::string_view state_format_name(StateFormat format) noexcept {
  switch (format) {
    case StateFormat::safetensors: return "safetensors";
    case StateFormat::torch: return "torch";
    case StateFormat::dcp: return "dcp";
    case StateFormat::hf: break;
  }
  return "hf";
}

Result<ExportSummary> export_state(const State& state, StateFormat format, const std::string& path,
                                   const ExportOptions& options) {
  return no_throw("converting", [&]() -> Result<ExportSummary> {
    TensorStream tensors(options.run, bytes_of(state));
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
      case StateFormat::dcp:
        return write_folder(
            path, [&](const std::string& folder) { return interop::write_dcp_folder(state, tensors, folder); });
      case StateFormat::hf: break;
    }
    return write_folder(path, [&](const std::string& folder) { return write_model(state, options, tensors, folder); });
  });
}

Result<ExportSummary> stream_state(const State& state, const Snapshot::Sink& sink, const RunOptions& options) {
  return no_throw("converting", [&]() -> Result<ExportSummary> {
    TensorStream tensors(options, bytes_of(state));
    BITSNAP_ASSIGN(const std::uint64_t bytes, interop::write_safetensors_file(state, tensors, sink));
    return ExportSummary{bytes};
  });
}

}  // namespace bitsnap
