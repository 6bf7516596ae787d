// The command `bitsnap`: parses the command line, runs one sub-command, and turns its result into an exit status.
#include "cli/program.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <bitsnap/cpu.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/version.hpp>

#include "cli/closest_name.hpp"
#include "cli/command.hpp"
#include "cli/help_formatter.hpp"
#include "cli/operating_system.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

constexpr std::string_view kShortHelp = R"(bitsnap stores training checkpoints losslessly and many times smaller.

Runs: the checkpoints of a training in one directory
  bitsnap add run --step 10 model.safetensors            save the next checkpoint of a run
  bitsnap ingest run checkpoints/                        save a history of checkpoints, step by step
  bitsnap watch run checkpoints/                         save each checkpoint once it is complete
  bitsnap estimate checkpoints/ --keep-last 5            say what a run would hold, writing nothing
  bitsnap log run                                        list steps, times, sizes, ratios and bases
  bitsnap label run@10 best                              name a checkpoint: run@best is run@10
  bitsnap extract run@10                                 write run-10.safetensors, byte for byte
  bitsnap prune run --keep-last 5 --keep-every 1000      remove all other checkpoints
  bitsnap rollback run --to 10                           remove all steps after 10
  bitsnap branch run@10 lr2                              begin a second line at step 10: run:lr2
  bitsnap mirror run s3://bucket/run --watch             keep a copy that follows the run
  bitsnap repair run                                     make a damaged run usable again
  bitsnap du run                                         show bytes by role and by step
  bitsnap agent status run                               show what the agent keeps in memory
  bitsnap report run -o report.html                      plot all of that in one HTML page

Files: one snapshot each
  bitsnap compress model.safetensors                     write model.bsnap
  bitsnap compress step2.safetensors --base step1.bsnap  store only what changed since step1
  bitsnap decompress model.bsnap                         write model.safetensors, byte for byte
  bitsnap bench model.safetensors                        compare all codecs with zstd and lz4

Both: files and checkpoints; RUN alone means its newest checkpoint, for `verify` all checkpoints
  bitsnap inspect model.bsnap                            show codec, size and reason of each tensor
  bitsnap verify *.bsnap run                             read every byte and report each damage
  bitsnap diff run@10 run@20                             show which tensors changed, and how far
  bitsnap convert run@10 model.pt                        write its tensors as a torch file
  bitsnap analyze run --steps 5                          show what changes, and how small it can get

`bitsnap --help` and `bitsnap COMMAND --help` show more.
)";

constexpr std::string_view kUsageKind = "usage";  // in addition to the error kinds of the library

constexpr const char* kDescription = "bitsnap stores training checkpoints losslessly and many times smaller.";

constexpr const char* kExitCodes = R"(Exit status:
  0   success              13  unsupported: written by a newer version
  1   diff found changes   14  truncated data
  2   wrong command line   15  corrupt data
  11  invalid argument     16  input/output error of the system
  12  not found            17  out of memory, or over a limit
  18  busy                 19  cancelled
  20  internal error       128 + signal number: interrupted by a signal)";

std::string version_text() {
  return fmt::format("bitsnap {} (snapshot format {})\ncpu level: {} (detected: {})\n", version(), kFormatVersion,
                     cpu_level_name(cpu_level()), cpu_level_name(detected_cpu_level()));
}

Result<void> apply_cpu_level(const std::string& name) {
  if (name.empty()) return {};
  const auto level = cpu_level_from_name(name);
  if (!level) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("--cpu-level must be scalar, avx2, avx512 or neon, got '{}'", name));
  }
  if (!force_cpu_level(*level)) {
    return fail(ErrorKind::unsupported, fmt::format("--cpu-level {}: this machine supports only {}", name,
                                                    cpu_level_name(detected_cpu_level())));
  }
  return {};
}

int report(const Error& error, const CommonOptions& common, bool json_lines = false) {
  if (const int signal = interrupt_signal(); signal != 0 && error.kind() == ErrorKind::cancelled) {
    print_note("bitsnap: interrupted\n");
    return exit_code_of_signal(signal);
  }
  if (common.json && json_lines) {
    print_json_line({{"error", error}});
  } else if (common.json) {
    print_json({{"error", error}});
  }
  print_error(error.message(), error_kind_name(error.kind()));
  return exit_code(error.kind());
}

// Whether --json is given, for command lines that cannot be parsed.
bool asks_for_json(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--json" || argument == "--") return argument == "--json";
  }
  return false;
}

// Whether it begins with a scheme, as in https://host/run.
bool is_url(std::string_view text) {
  const std::size_t end = text.find("://");
  return end != std::string_view::npos && end >= 2 && std::isalpha(static_cast<unsigned char>(text.front())) != 0 &&
         std::ranges::all_of(text.substr(0, end),
                             [](unsigned char c) { return std::isalnum(c) != 0 || c == '+' || c == '-' || c == '.'; });
}

bool is_run_url(std::string_view text) {
  constexpr std::array<std::string_view, 3> kServices = {"s3://", "gs://", "az://"};
  return std::ranges::any_of(kServices, [&](std::string_view service) { return text.starts_with(service); });
}

// What can be no run.
bool is_local(const CLI::App& command, const CLI::Option& option) {
  constexpr std::array<std::string_view, 4> kCommands = {"compress", "decompress", "estimate", "bench"};
  constexpr std::array<std::string_view, 4> kOptions = {"--output", "--base", "--like", "DIR"};
  const std::string& command_name = command.get_name();
  const std::string name = option.get_name();
  return std::ranges::find(kCommands, command_name) != kCommands.end() ||
         std::ranges::find(kOptions, name) != kOptions.end();
}

// The first argument that is the address of a run in an object store, or empty. The system takes other URLs for the
// path of local folders, so each would seem to work: they are errors. Labels are no paths.
Result<std::string> find_url(const CLI::App& app) {
  std::string found;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_name() == "--label" || option->get_name() == "--remove" || option->get_name() == "NAME") continue;
    for (const std::string& value : option->results()) {
      if (!is_url(value)) continue;
      if (is_local(app, *option)) {
        return fail(
            ErrorKind::invalid_argument,
            fmt::format("{}: is a URL, expected a path of this machine; only runs can be in object stores", value));
      }
      if (!is_run_url(value)) {
        return fail(ErrorKind::invalid_argument,
                    fmt::format("{}: is a URL, expected a path of this machine, or a run in an object store, as in "
                                "s3://bucket/run; copy the files, or mount the storage, and name that path",
                                value));
      }
      if (found.empty()) found = value;
    }
  }
  for (const CLI::App* used : app.get_subcommands()) {
    BITSNAP_ASSIGN(const std::string below, find_url(*used));
    if (found.empty()) found = below;
  }
  return found;
}

class Program {
 public:
  explicit Program(bool has_object_stores) : has_object_stores_(has_object_stores), app_(kDescription, "bitsnap") {
    app_.require_subcommand(0, 1);
    app_.formatter(std::make_shared<HelpFormatter>());
    app_.add_flag("--version", show_version_, "Print the version and the CPU level");
    add_common_options(app_, common_);
    for (const auto& add :
         {add_add,     add_ingest, add_watch,    add_estimate, add_log,     add_label, add_extract,    add_prune,
          add_branch,  add_mirror, add_rollback, add_repair,   add_du,      add_agent, add_compress,   add_decompress,
          add_inspect, add_verify, add_diff,     add_convert,  add_analyze, add_bench, add_completion, add_man}) {
      commands_.push_back(add(app_, common_));
      add_common_options(*commands_.back().app, common_);
    }
    help_ = app_.add_subcommand("help", "Show the help of a command");
    help_->add_option("COMMAND", help_topic_, "The command")->type_name("");
    app_.footer(external_help() + kExitCodes);  // set after the sub-commands are added, because they would inherit it
  }

  int run(int argc, const char* const* argv) {
    json_ = asks_for_json(argc, argv);
    if (argc <= 1) {
      print_result(kShortHelp);
      return kExitOk;
    }
    if (const auto status = run_external_command(argv)) return *status;
    try {
      app_.parse(argc, argv);
    } catch (const CLI::Success&) {  // --help
      const auto used = app_.get_subcommands();
      print_help(used.empty() ? nullptr : used.front());
      return kExitOk;
    } catch (const CLI::ParseError& error) {
      return explain(error);
    }
    if (const auto applied = apply_cpu_level(common_.cpu_level); !applied) return report(applied.error(), common_);
    const auto url = find_url(app_);
    if (!url) return report(url.error(), common_);
    if (!url->empty() && !has_object_stores_) return become_remote(*url, argv + 1);
    if (common_.max_cost) set_max_cost(*common_.max_cost);
    if (show_version_) {
      print_result(version_text());
      return kExitOk;
    }
    if (help_->parsed()) return show_help();
    for (const Command& command : commands_) {
      if (command.app->parsed()) {
        const auto status = command.run();
        return status ? *status : report(status.error(), common_, command.json_lines);
      }
    }
    return usage_error("no command given", "`bitsnap --help` lists them");
  }

  [[nodiscard]] const CommonOptions& common() const noexcept { return common_; }

 private:
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Command& command : commands_) names.push_back(command.app->get_name());
    names.emplace_back(kReport.name);
    return names;
  }

  [[nodiscard]] bool is_built_in(std::string_view name) const {
    return name == help_->get_name() ||
           std::ranges::any_of(commands_, [&](const Command& command) { return command.app->get_name() == name; });
  }

  // Becomes the program bitsnap-NAME, whose options are not parsed here. Returns nullopt if the first argument names no
  // such program, and an exit status if the program cannot be started.
  std::optional<int> run_external_command(const char* const* argv) {
    const std::string_view name = argv[1];
    if (name.starts_with('-') || is_built_in(name)) return std::nullopt;
    return become_external(name, argv + 2);
  }

  std::optional<int> become_external(std::string_view name, const char* const* arguments) {
    const auto path = find_external(name);
    if (!path) return std::nullopt;
    const Error error = run_external(*path, arguments);
    common_.json = json_;
    return report(error, common_);
  }

  // The Python package has clients of object stores.
  int become_remote(const std::string& url, const char* const* arguments) const {
    const auto path = find_external(kRemote.name);
    if (!path) {
      return report(Error(ErrorKind::unsupported,
                          fmt::format("{}: bitsnap-{} was found neither in the folder of this program nor on PATH; {}",
                                      url, kRemote.name, kRemote.how_to_get)),
                    common_);
    }
    return report(run_external(*path, arguments), common_);
  }

  int usage_error(std::string_view message, std::string_view hint) const {
    if (json_) print_json({{"error", {{"kind", kUsageKind}, {"message", message}, {"exit_code", kExitUsage}}}});
    print_error(message, kUsageKind);
    print_note(fmt::format("{}\n", hint));
    return kExitUsage;
  }

  int unknown_command(const std::string& name) {
    common_.json = json_;
    if (find_external(name)) {
      return usage_error(fmt::format("'{}' is an external program", name),
                         fmt::format("write its options after its name: `bitsnap {} ...`", name));
    }
    if (name == kReport.name) {
      return report(Error(ErrorKind::not_found,
                          fmt::format("bitsnap-{}: found neither in the folder of this program nor on PATH; {}", name,
                                      kReport.how_to_get)),
                    common_);
    }
    const auto suggestion = closest_name(name, names());
    return usage_error(fmt::format("'{}' is not a command", name),
                       suggestion ? fmt::format("did you mean `bitsnap {}`?", *suggestion)
                                  : std::string("`bitsnap --help` lists the commands"));
  }

  // nullptr: the help of the program itself.
  void print_help(const CLI::App* command) const {
    const CLI::App* app = command == nullptr ? &app_ : command;
    std::string name = command == nullptr ? "bitsnap" : "bitsnap " + command->get_name();
    for (std::vector<CLI::App*> used; command != nullptr && !(used = app->get_subcommands()).empty();) {
      app = used.front();
      name += " " + app->get_name();
    }
    print_result(app_.get_formatter()->make_help(app, name, CLI::AppFormatMode::Normal));
  }

  int show_help() {
    if (help_topic_.empty()) {
      print_help(nullptr);
      return kExitOk;
    }
    for (const Command& command : commands_) {
      if (command.app->get_name() == help_topic_) {
        print_help(command.app);
        return kExitOk;
      }
    }
    constexpr std::array<const char*, 2> kHelp = {"--help", nullptr};
    if (const auto status = become_external(help_topic_, kHelp.data())) return *status;
    return unknown_command(help_topic_);
  }

  // An option of the command that is like the first one that it does not have.
  std::optional<std::string> similar_option(const CLI::App& command) const {
    std::vector<std::string> names;
    for (const CLI::App* const app : {&command, &app_}) {
      for (const CLI::Option* const option : app->get_options()) {
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
      }
    }
    for (const std::string& rest : command.remaining()) {
      if (rest.starts_with("--")) return closest_name(rest.substr(0, rest.find('=')), names);
    }
    return std::nullopt;
  }

  int explain(const CLI::ParseError& error) {
    const auto used = app_.get_subcommands();
    if (used.empty()) {
      for (const std::string& rest : app_.remaining()) {
        if (!rest.starts_with('-')) return unknown_command(rest);
      }
    }
    const std::string command = used.empty() ? "" : used.front()->get_name() + " ";
    if (const auto suggestion = similar_option(used.empty() ? app_ : *used.front())) {
      return usage_error(error.what(), fmt::format("did you mean `{}`?", *suggestion));
    }
    return usage_error(error.what(), fmt::format("`bitsnap {}--help` shows the options", command));
  }

  const bool has_object_stores_;
  CommonOptions common_;
  CLI::App app_;
  bool json_ = false;  // known even if the command line cannot be parsed into common_
  bool show_version_ = false;
  std::vector<Command> commands_;
  CLI::App* help_ = nullptr;
  std::string help_topic_;
};

}  // namespace

int run_program(int argc, const char* const* argv, bool has_object_stores) {
  open_standard_streams();
  catch_interrupts();
  ignore_file_size_signal();
  Program program(has_object_stores);
  int status = kExitOk;
  try {
    status = program.run(argc, argv);
  } catch (const std::bad_alloc&) {
    status = report(Error(ErrorKind::resource_exhausted, "out of memory"), program.common());
  } catch (const std::system_error& error) {
    status = report(Error(ErrorKind::io, error.what()), program.common());
  } catch (const std::exception& error) {
    status = report(Error(ErrorKind::internal, error.what()), program.common());
  }
  // Output that could not be written, for example to a full disk, is a failure even if the command succeeded.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    print_error("standard output: cannot be written", error_kind_name(ErrorKind::io));
    status = status == kExitOk ? exit_code(ErrorKind::io) : status;
  }
  return status;
}

}  // namespace bitsnap::cli
