// `bitsnap completion` and `bitsnap man`: print what shells and man(1) know the command line by.
#include <memory>
#include <string>

#include "cli/command.hpp"
#include "cli/command_tree.hpp"

namespace bitsnap::cli {

Command add_completion(CLI::App& program, const CommonOptions& /*common*/) {
  auto shell = std::make_shared<std::string>();
  CLI::App* app = program.add_subcommand("completion", "Print the script that completes this command in a shell");
  app->add_option("SHELL", *shell, "The shell")
      ->required()
      ->type_name("")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  app->footer(
      "In bash: eval \"$(bitsnap completion bash)\"\n"
      "In zsh, after compinit: eval \"$(bitsnap completion zsh)\"\n"
      "In fish: bitsnap completion fish | source");
  return {app, [&program, shell]() -> Result<int> {
            const CommandText text = describe_program(program);
            print_exact(*shell == "bash"  ? bash_completion(text)
                        : *shell == "zsh" ? zsh_completion(text)
                                          : fish_completion(text));
            return kExitOk;
          }};
}

Command add_man(CLI::App& program, const CommonOptions& /*common*/) {
  CLI::App* app = program.add_subcommand("man", "Print the manual page, in roff");
  app->footer("To read it: bitsnap man | man -l -");
  return {app, [&program]() -> Result<int> {
            print_exact(manual_page(describe_program(program)));
            return kExitOk;
          }};
}

}  // namespace bitsnap::cli
