// All three scripts first find the command that the words so far name, such as "agent status": the words that
// are commands, in order; options and other words in between are skipped.
#include "cli/command_tree.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace bitsnap::cli {

namespace {

// In single quotes, as bash and zsh read them.
std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += R"('\'')";
    } else {
      out += c == '\n' ? ' ' : c;
    }
  }
  return out + "'";
}

// The same for fish, where a backslash escapes within quotes.
std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "'";
}

// An item of zsh's _describe: a colon ends the word.
std::string zsh_item(std::string_view word, std::string_view help) {
  std::string name;
  for (const char c : word) {
    if (c == ':' || c == '\\') name += '\\';
    name += c;
  }
  return shell_quoted(fmt::format("{}:{}", name, help));
}

// The words that may follow as the only positional, such as names of commands after `help`.
std::vector<std::string> choices_of_positionals(const CommandText& command) {
  return command.positionals.size() == 1 ? command.positionals.front().choices : std::vector<std::string>();
}

std::string option_names(const CommandText& command, std::string_view between) {
  std::vector<std::string> names;
  for (const OptionText& option : command.options) names.insert(names.end(), option.names.begin(), option.names.end());
  return fmt::format("{}", fmt::join(names, between));
}

// Lines of a `case` over "COMMAND WORD" that set `command`.
std::string command_cases(const CommandText& program, std::string_view indent) {
  std::string out;
  for (const CommandText* command : all_commands(program)) {
    if (command->path.empty()) continue;
    const bool top = command->path.find(' ') == std::string::npos;
    out += fmt::format("{}{}) command={} ;;\n", indent, shell_quoted((top ? " " : "") + command->path),
                       shell_quoted(command->path));
  }
  return out;
}

// Lines of a `case` over "COMMAND OPTION", for options with a value: they set `value` to 1, and `choices`.
std::string value_cases(const CommandText& program, std::string_view indent) {
  std::string out;
  for (const CommandText* command : all_commands(program)) {
    for (const OptionText& option : command->options) {
      if (option.value.empty()) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) patterns.push_back(shell_quoted(command->path + " " + name));
      out += fmt::format("{}{}) choices={}; value=1 ;;\n", indent, fmt::join(patterns, "|"),
                         shell_quoted(fmt::format("{}", fmt::join(option.choices, " "))));
    }
  }
  return out;
}

}  // namespace

std::string bash_completion(const CommandText& program) {
  std::string cases;
  for (const CommandText* command : all_commands(program)) {
    std::vector<std::string> first = choices_of_positionals(*command);
    for (const CommandText& below : command->commands) first.emplace_back(command_name(below));
    cases +=
        fmt::format("      {}) options={}; choices={} ;;\n", shell_quoted(command->path),
                    shell_quoted(option_names(*command, " ")), shell_quoted(fmt::format("{}", fmt::join(first, " "))));
  }
  return fmt::format(R"(# Completion of the command bitsnap in bash, made by `bitsnap completion bash`.
_bitsnap() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
  local command= options= choices= value= i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$command ${{COMP_WORDS[i]}}" in
{}    esac
  done
  case "$command $previous" in
{}  esac
  if [ -z "$value" ]; then
    case "$command" in
{}    esac
    [[ $word != -* ]] || choices=$options
  fi
  # Without choices, bash completes names of files.
  COMPREPLY=($(compgen -W "$choices" -- "$word"))
}}
complete -o bashdefault -o default -F _bitsnap bitsnap
)",
                     command_cases(program, "      "), value_cases(program, "    "), cases);
}

std::string zsh_completion(const CommandText& program) {
  std::string cases;
  for (const CommandText* command : all_commands(program)) {
    cases += fmt::format("    {})\n", shell_quoted(command->path));
    cases += "      options=(\n";
    for (const OptionText& option : command->options) {
      for (const std::string& name : option.names) cases += fmt::format("        {}\n", zsh_item(name, option.help));
    }
    cases += "      )\n      commands=(\n";
    for (const CommandText& below : command->commands) {
      cases += fmt::format("        {}\n", zsh_item(command_name(below), below.help));
    }
    for (const std::string& choice : choices_of_positionals(*command)) {
      cases += fmt::format("        {}\n", shell_quoted(choice));
    }
    cases += "      )\n      ;;\n";
  }
  return fmt::format(R"(#compdef bitsnap
# Completion of the command bitsnap in zsh, made by `bitsnap completion zsh`.
_bitsnap() {{
  local command= choices= value= word
  local -a options commands
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case "$command $word" in
{}    esac
  done
  case "$command ${{words[CURRENT-1]}}" in
{}  esac
  if [[ -n $value ]]; then
    if [[ -n $choices ]]; then
      compadd -- ${{=choices}}
    else
      _files
    fi
    return
  fi
  case "$command" in
{}  esac
  if [[ ${{words[CURRENT]}} == -* ]]; then
    _describe -o option options
  elif (( $#commands )); then
    _describe command commands
  else
    _files
  fi
}}
if [[ $funcstack[1] == _bitsnap ]]; then
  _bitsnap "$@"  # from a folder of fpath, which zsh runs as the function itself
else
  compdef _bitsnap bitsnap
fi
)",
                     command_cases(program, "      "), value_cases(program, "    "), cases);
}

std::string fish_completion(const CommandText& program) {
  std::string out = R"(# Completion of the command bitsnap in fish, made by `bitsnap completion fish`.
function __bitsnap_is_at
    set -l command
    for word in (commandline -opc)[2..]
        switch "$command $word"
)";
  for (const CommandText* command : all_commands(program)) {
    if (command->path.empty()) continue;
    const bool top = command->path.find(' ') == std::string::npos;
    out += fmt::format("            case {}\n                set command {}\n",
                       fish_quoted((top ? " " : "") + command->path), fish_quoted(command->path));
  }
  out += R"(        end
    end
    test "$command" = "$argv[1]"
end
)";
  for (const CommandText* command : all_commands(program)) {
    const std::string start =
        fmt::format("complete -c bitsnap -n {}", fish_quoted("__bitsnap_is_at '" + command->path + "'"));
    for (const CommandText& below : command->commands) {
      out += fmt::format("{} -f -a {} -d {}\n", start, command_name(below), fish_quoted(below.help));
    }
    for (const std::string& choice : choices_of_positionals(*command))
      out += fmt::format("{} -f -a {}\n", start, choice);
    for (const OptionText& option : command->options) {
      std::string names;
      for (const std::string& name : option.names) {
        names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      std::string value = option.value.empty() ? "" : " -r";
      if (!option.choices.empty())
        value = fmt::format(" -x -a {}", fish_quoted(fmt::format("{}", fmt::join(option.choices, " "))));
      out += fmt::format("{}{}{} -d {}\n", start, names, value, fish_quoted(option.help));
    }
  }
  return out;
}

}  // namespace bitsnap::cli
