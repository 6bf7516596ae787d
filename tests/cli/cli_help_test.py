"""--help of all commands: its width, its blank lines, its headings, and what usage errors say about numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.command_line import USAGE, run, run_json

WIDTH = 100
COMMANDS = [
    *("add", "ingest", "watch", "estimate", "log", "label", "extract", "prune", "branch", "mirror"),
    *("rollback", "repair", "du", "agent"),
    *(
        "compress",
        "decompress",
        "bench",
        "inspect",
        "verify",
        "diff",
        "convert",
        "analyze",
        "completion",
        "man",
        "help",
    ),
]
BELOW_AGENT = [["agent", command, "--help"] for command in ("status", "stop", "run")]
PAGES = [[], ["--help"], *([command, "--help"] for command in COMMANDS), *BELOW_AGENT]


def page(*arguments: str) -> str:
    return run(*arguments).stdout.decode()


@pytest.mark.parametrize("arguments", PAGES, ids=" ".join)
def test_no_line_of_the_help_is_wider_than_100_columns(arguments: list[str]) -> None:
    lines = page(*arguments).splitlines()
    assert len(lines) > 5
    assert [line for line in lines if len(line) > WIDTH] == []
    assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize("arguments", PAGES, ids=" ".join)
def test_one_blank_line_stands_between_the_parts_of_the_help(arguments: list[str]) -> None:
    text = page(*arguments)
    assert "\n\n" in text
    assert "\n\n\n" not in text
    assert not text.endswith("\n\n")


def test_the_help_shows_all_commands_under_headings_with_one_colon() -> None:
    text = page("--help")
    assert set(re.findall(r"^  ([a-z]+) ", text, re.MULTILINE)) == {*COMMANDS, "report"}
    headings = re.findall(r"^\S.*(?=\n  )", text, re.MULTILINE)
    assert "Runs: the checkpoints of a training in one directory" in headings
    assert "Options:" in headings
    assert [heading for heading in headings if heading.count(":") != 1] == []


def test_long_descriptions_go_on_in_their_own_column() -> None:
    text = page("add", "--help")
    policy = re.search(r"^  --policy POLICY .*\n(( {34}\S.*\n)+)", text, re.MULTILINE)
    assert policy
    assert " ".join(policy[0].split()).endswith("raw: uncompressed")
    # A name that does not fit its column has a line of its own.
    assert re.search(r"^  --keep-raw N .*\n {34}Do not delete", page("watch", "--help"), re.MULTILINE)


def test_commands_that_save_take_the_run_first() -> None:
    for command, arguments in {"add": "RUN IN", "ingest": "RUN IN...", "watch": "RUN DIR"}.items():
        assert f"Usage: bitsnap {command} [OPTIONS] {arguments}\n" in page(command, "--help")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["analyze", "x", "--steps", "0"], "--steps must be a whole number of at least 1, got '0'"),
        (["prune", "x", "--keep-last", "0"], "--keep-last must be a whole number of at least 1, got '0'"),
        (["prune", "x", "--keep-every", "1.5"], "--keep-every must be a whole number of at least 1, got '1.5'"),
        (["prune", "x", "--keep", "10,x"], "--keep must be a whole number, got 'x'"),
        (["add", "x", "y", "--step", "0x10"], "--step must be a whole number, got '0x10'"),
        (["log", "x", "--threads", "many"], "--threads must be a whole number from 0 to 4096, got 'many'"),
        (["log", "x", "-T", "-1"], "--threads must be a whole number from 0 to 4096, got '-1'"),
        (["log", "x", "-T", "4097"], "--threads must be a whole number from 0 to 4096, got '4097'"),
        (["log", "x", "--max-cost", "nan"], "--max-cost must be a number from 1e-09 to 1000000000, got 'nan'"),
        (["analyze", "x", "--limit-mb", "0"], "--limit-mb must be a whole number from 1 to 1000000, got '0'"),
        (["bench", "x", "--rounds", "1001"], "--rounds must be a whole number from 1 to 1000, got '1001'"),
        (["bench", "x", "--seconds", "-1"], "--seconds must be a number from 0 to 86400, got '-1'"),
        (["watch", "x", "y", "--poll", "soon"], "--poll must be a number of seconds from 0 to 86400, got 'soon'"),
        (["add", "x", "y", "--store-speed", "fast"], "--store-speed must be a number, such as 8 or 200M, got 'fast'"),
        (["compress", "x", "--betas", "0.9"], "--betas must be two numbers, such as 0.9,0.95, got '0.9'"),
        (["compress", "x", "--eps", "tiny"], "--eps must be a number, got 'tiny'"),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else "",
)
def test_an_error_about_a_number_says_what_it_must_be(arguments: list[str], message: str) -> None:
    assert run(*arguments, status=USAGE).stderr.decode().splitlines()[0] == f"bitsnap: error: {message} [usage]"


def test_numbers_are_decimal_and_lists_add_up(tmp_path: Path) -> None:
    (tmp_path / "content").write_bytes(b"content")
    for step in ("07", "08", "09", "010", "011"):
        run("add", tmp_path / "run", "--step", step, tmp_path / "content")
    run("prune", tmp_path / "run", "--keep", "010,8", "--keep", "9")
    assert [checkpoint["step"] for checkpoint in run_json("log", tmp_path / "run")] == [8, 9, 10, 11]
