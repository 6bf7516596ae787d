"""`bitsnap completion` and `bitsnap man` name every command and option that --help shows, and real shells complete by
them. Shells and programs that are not installed are left out; bash is always there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cli.command_line import USAGE, run

SHELLS = ("bash", "zsh", "fish")


def help_of(*command: str) -> str:
    return run(*command, "--help").stdout.decode()


def commands_in(text: str) -> list[str]:
    """The names in the lists of commands of a help text."""
    sections = re.split(r"\n\n+", text)
    lists = [part for part in sections if re.match(r"(Runs|Files|Both|Subcommands|Programs|Commands)\b.*\n", part)]
    return re.findall(r"^  ([a-z]+) ", "\n".join(lists), re.MULTILINE)


def options_in(text: str) -> list[list[str]]:
    """The names of each option: [["-T", "--threads"], ...]."""
    return [names.split(",") for names in re.findall(r"^  (-{1,2}[A-Za-z][\w,-]*)", text, re.MULTILINE)]


@pytest.fixture(scope="module")
def shown() -> dict[str, list[list[str]]]:
    """Of each command, its options by --help."""
    program = help_of()
    found = {"": options_in(program)}
    for name in commands_in(program):
        if name == "report":  # a program of its own
            found[name] = []
            continue
        text = help_of(name)
        found[name] = options_in(text)
        for below in commands_in(text):
            found[f"{name} {below}"] = options_in(help_of(name, below))
    return found


def script(shell: str) -> str:
    return run("completion", shell).stdout.decode()


def complete(shell: str, line: str, folder: Path) -> list[str]:
    """What the shell offers for the last word of the line."""
    if shell == "fish":
        code = f"{script(shell)}\ncomplete -C {line!r}"
        done = subprocess.run(
            ["fish", "--no-config", "-c", code], capture_output=True, text=True, cwd=folder, check=True, timeout=60
        )
        return [offer.partition("\t")[0] for offer in done.stdout.splitlines()]
    words = " ".join(f"'{word}'" for word in line.split(" "))
    if shell == "bash":
        code = f"{script(shell)}\nCOMP_WORDS=({words}) COMP_CWORD=$(({len(line.split(' '))} - 1))\n_bitsnap\n"
        code += "printf '%s\\n' \"${COMPREPLY[@]}\""
        arguments = ["bash", "--norc", "-uc", code]
    else:  # the functions that only a line editor has print what they are given
        code = f"""
            compdef() {{ }}; _files() {{ }}; compadd() {{ shift; print -l -- $@ }}
            _describe() {{ print -l -- ${{${{(P@)@[-1]}}%%:*}} }}
            {script(shell)}
            words=({words}); CURRENT=$#words; _bitsnap
        """
        arguments = ["zsh", "-f", "-c", code]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=folder, check=True, timeout=60)
    assert done.stderr == ""
    typed = line.split(" ")[-1]
    return [offer for offer in done.stdout.splitlines() if offer and offer.startswith(typed)]


def need(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_every_command_and_option(
    shell: str, shown: dict[str, list[list[str]]], tmp_path: Path
) -> None:
    need(shell)
    offered = set(complete(shell, "bitsnap ", tmp_path))
    assert {name for name in shown if name and " " not in name} <= offered
    assert {"status", "stop", "run"} == set(complete(shell, "bitsnap -q agent ", tmp_path))
    for command in ("", "add", "agent status"):
        names = {name for names in shown[command] for name in names if name.startswith("--")}
        assert names
        assert names <= set(complete(shell, f"bitsnap {command} --".replace("  ", " "), tmp_path)), command
    assert complete(shell, "bitsnap convert --to saf", tmp_path) == ["safetensors"]
    assert complete(shell, "bitsnap help rep", tmp_path) == ["repair", "report"]
    assert complete(shell, "bitsnap completion z", tmp_path) == ["zsh"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_names_every_command_and_option(shell: str, shown: dict[str, list[list[str]]]) -> None:
    text = script(shell)
    for command, options in shown.items():
        assert command in text
        for names in options:
            for name in names:
                word = name if shell != "fish" else f"-l {name[2:]} " if name.startswith("--") else f"-s {name[1:]} "
                assert word in text, (command, name)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_can_read_its_script(shell: str, tmp_path: Path) -> None:
    need(shell)
    path = tmp_path / "script"
    path.write_text(script(shell))
    subprocess.run([shell, "-n", path], check=True, timeout=60)


def test_bash_leaves_file_names_to_itself(tmp_path: Path) -> None:
    for line in ("bitsnap add ", "bitsnap add --step ", "bitsnap compress -o "):
        assert complete("bash", line, tmp_path) == []


def test_an_unknown_shell_is_a_usage_error() -> None:
    assert b"SHELL" in run("completion", "tcsh", status=USAGE).stderr


def test_the_manual_page_has_every_command_and_option(shown: dict[str, list[list[str]]]) -> None:
    page = run("man").stdout.decode().replace("\\-", "-")
    sections = dict(re.findall(r'^\.SS "bitsnap ([a-z ]+)"\n(.*?)(?=^\.S[SH] |\Z)', page, re.MULTILINE | re.DOTALL))
    sections[""] = page[page.index(".SH OPTIONS") : page.index(".SH COMMANDS")]
    assert sections.keys() == shown.keys()
    for command, options in shown.items():
        for names in options:
            title = ", ".join(f"\\fB{name}\\fR" for name in names)
            assert title in sections[command] + sections[""], (command, names)


@pytest.mark.parametrize(
    ("program", "arguments"),
    [("groff", ["-man", "-ww", "-Tutf8", "-z"]), ("mandoc", ["-Tlint", "-Wwarning"])],
)
def test_the_manual_page_renders_without_warnings(program: str, arguments: list[str]) -> None:
    need(program)
    done = subprocess.run([program, *arguments], input=run("man").stdout, capture_output=True, check=False, timeout=60)
    warnings = (done.stdout + done.stderr).decode().splitlines()
    # The page has no date, so that equal sources give equal files.
    assert [line for line in warnings if "missing date" not in line] == []
