"""What the command says of values that only a program makes again: `inspect` lists them, `convert` names them."""

from __future__ import annotations

import fractions
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import bitsnap
from bitsnap._states import program_values
from cli.command_line import UNSUPPORTED, run, run_json


class Scale:
    def __init__(self, value: Any) -> None:
        self.value = value


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(program_values, "_by_tag", {})
    monkeypatch.setattr(program_values, "_by_type", {})
    program_values._changes += 1
    bitsnap.register_value("test.Scale", Scale, vars, lambda content: Scale(**content))
    yield
    program_values._changes += 1


def inspected(path: object) -> dict[str, str]:
    """The lines above the tables, by their first words."""
    text = run("inspect", path).stdout.decode().split("\n\n")[0]
    return dict(line.split(maxsplit=1) for line in text.splitlines())


def test_inspect_lists_tags_and_pickled_types(tmp_path: Path) -> None:
    state = {
        "a": Scale(torch.ones(3)),
        "b": [Scale({"c": Scale(1)})],
        "x": fractions.Fraction(1),
        "y": (bytearray(100_000), bytearray(3)),
    }
    bitsnap.save(tmp_path / "a.bsnap", state, allow_pickle=True)
    lines = inspected(tmp_path / "a.bsnap")
    assert lines["registered"] == "test.Scale (3)"
    assert lines["pickled"] == "bytearray (2), fractions.Fraction; loading these runs code that the file chooses"
    tree = json.dumps(run_json("inspect", tmp_path / "a.bsnap")["tree"])
    assert '{"typed": ["registered", {"tuple": ["test.Scale", ' in tree
    assert '{"typed": ["pickle", {"tuple": ["fractions.Fraction", {"bytes": ' in tree


def test_inspect_is_silent_of_plain_states(tmp_path: Path) -> None:
    bitsnap.save(tmp_path / "a.bsnap", {"registered": torch.ones(3), "pickle": ("a", b"b"), "s": {1}})
    assert not {"registered", "pickled"} & inspected(tmp_path / "a.bsnap").keys()


def test_names_are_printable_and_not_endless(tmp_path: Path) -> None:
    kind = type("Evil\x1b[31m\n" + "x" * 500, (), {"__reduce__": lambda self: (bytearray, ())})
    bitsnap.save(tmp_path / "a.bsnap", [kind()], allow_pickle=True)
    shown = inspected(tmp_path / "a.bsnap")["pickled"]
    assert "\x1b" not in shown
    assert len(shown) < 200


def test_convert_names_the_place_and_the_tag_or_type(tmp_path: Path) -> None:
    for value, what in [
        (Scale(1), "a value with the registered tag 'test.Scale'"),
        (fractions.Fraction(1), "a pickled value of the type 'fractions.Fraction'"),
    ]:
        path = tmp_path / "a.bsnap"
        bitsnap.save(path, {"w": torch.ones(3), "m": [value]}, allow_pickle=True, overwrite=True)
        for form in ("torch", "dcp"):
            refused = run("convert", path, tmp_path / form, "--to", form, status=UNSUPPORTED).stderr.decode()
            assert f"is {what}, which torch.load refuses" in refused
            assert "m" in refused
        run("convert", path, tmp_path / "a.pt", "--tensors-only", "-f")
        assert list(torch.load(tmp_path / "a.pt")) == ["w"]


def test_values_survive_a_safetensors_file(tmp_path: Path) -> None:
    bitsnap.save(tmp_path / "a.bsnap", {"w": torch.ones(3), "m": Scale({"t": torch.zeros(2)})})
    run("convert", tmp_path / "a.bsnap", tmp_path / "b.safetensors")
    run("convert", tmp_path / "b.safetensors", tmp_path / "c.bsnap")
    run("diff", tmp_path / "a.bsnap", tmp_path / "c.bsnap")
    loaded = bitsnap.load(tmp_path / "c.bsnap")["m"]
    assert type(loaded) is Scale
    assert torch.equal(loaded.value["t"], torch.zeros(2))
