// Writing a snapshot as a safetensors file.
#include "cli/output/safetensors_output.hpp"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <span>
#include <system_error>

#include <fmt/format.h>

#include <bitsnap/safetensors.hpp>

#include "cli/command.hpp"
#include "cli/operating_system.hpp"
#include "cli/output/progress_bar.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

Result<void> write_to_stdout(std::span<const std::byte> piece) {
  errno = 0;
  if (std::fwrite(piece.data(), 1, piece.size(), stdout) != piece.size()) {
    return fail(ErrorKind::io, fmt::format("standard output: {}", std::generic_category().message(errno)));
  }
  return {};
}

void add_output_options(CLI::App& app, SafetensorsOutput& output, std::string_view otherwise) {
  CLI::Option* path =
      app.add_option("-o,--output", output.path, fmt::format("Output file; -: standard output; default: {}", otherwise))
          ->type_name("OUT");
  app.add_flag_callback(
         "-c,--stdout", [&output] { output.path = kStdoutName; }, "Write to standard output")
      ->excludes(path);
  app.add_flag("-f,--force", output.force, "Overwrite the output");
}

Result<void> check_stdout(const SafetensorsOutput& output, const CommonOptions& common) {
  if (output.to_stdout() && common.json) {
    return fail(ErrorKind::invalid_argument, "--json and the file cannot both be written to standard output");
  }
  if (output.to_stdout() && is_terminal(stdout) && !output.force) {
    return fail(ErrorKind::invalid_argument, "standard output is a terminal; -f writes the file to it");
  }
  return {};
}

Result<WrittenSafetensors> write_safetensors(const Snapshot& snapshot, const std::optional<std::string>& tensor,
                                             const SafetensorsOutput& output, const std::string& label,
                                             const CommonOptions& common, std::span<const std::size_t> left_out) {
  const auto start = std::chrono::steady_clock::now();
  const auto write = [&]() -> Result<ExportSummary> {
    if (tensor) {
      const std::optional<std::size_t> index = snapshot.find(*tensor);
      if (!index) {
        return fail(ErrorKind::not_found,
                    fmt::format("there is no tensor '{}'; `bitsnap inspect` lists them", printable(*tensor)));
      }
      return output.to_stdout() ? stream_tensor(snapshot, *index, write_to_stdout)
                                : export_tensor(snapshot, *index, output.path, output.force);
    }
    ProgressBar bar(label, !common.quiet);
    RunOptions run;
    run.threads = common.threads;
    run.progress = bar.callback();
    return output.to_stdout() ? stream_safetensors(snapshot, write_to_stdout, run, left_out)
                              : export_safetensors(snapshot, output.path, output.force, run, left_out);
  };
  BITSNAP_ASSIGN(const ExportSummary summary, write());
  return WrittenSafetensors{summary.bytes, !tensor && left_out.empty() && snapshot.safetensors_header().has_value(),
                            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
}

void add_written(Json& report, const WrittenSafetensors& written) {
  report["output_bytes"] = written.bytes;
  report["original_header"] = written.exact;
  report["seconds"] = written.seconds;
  report["gbps"] = written.gbps();
}

void print_written(const std::string& input, const Snapshot& snapshot, const SafetensorsOutput& output,
                   const WrittenSafetensors& written, const CommonOptions& common) {
  print_note(fmt::format("{} : {} -> {}  ({})  {}\n", printable(input), format_size(snapshot.file_bytes()),
                         format_size(written.bytes), format_speed(written.bytes, written.seconds),
                         output.to_stdout() ? "standard output" : printable(output.path)));
  if (common.verbose) {
    print_note(fmt::format("id {}, {}, {}\n", snapshot.id().to_hex(),
                           format_plural(snapshot.tensors().size(), "tensor"),
                           written.exact ? "the original file, byte for byte" : "with a new header"));
  }
}

}  // namespace bitsnap::cli
