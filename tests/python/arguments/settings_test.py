"""Settings are values that the library's table defines."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bitsnap
from bitsnap import _bitsnap


def test_settings_are_values() -> None:
    settings = bitsnap.bounded(rules=["exp_avg:*.embed*=update_step:0.020"])
    assert settings == bitsnap.bounded(rules=("exp_avg:*.embed*=update_step:0.02",), master_bits=8)
    assert settings != bitsnap.bounded()
    assert settings != "bounded"
    assert len({settings, copy.deepcopy(settings), pickle.loads(pickle.dumps(settings)), bitsnap.bounded()}) == 2
    assert settings.loss == [
        "exp_avg:*.embed*=update_step:0.02",
        "master=master_bits:8",
        "exp_avg_sq=mantissa_bits:3",
        "exp_avg=update_step:0.02",
    ]
    with pytest.raises(AttributeError):
        settings.policy = "raw"  # type: ignore[misc]


def test_the_repr_has_the_given_settings_and_makes_them_again() -> None:
    settings = bitsnap.Settings(policy="lmc", store_speed=10**9, max_depth=0, loss=["master=exact"], codec="zstd")
    assert repr(settings) == (
        "Settings(policy='lmc', store_speed=1000000000, max_depth=0, loss=['master=exact'], codec='zstd')"
    )
    assert eval(repr(settings), {"Settings": bitsnap.Settings}) == settings
    assert repr(bitsnap.Settings()) == "Settings()"
    assert bitsnap.Settings(policy=None, loss=None) == bitsnap.Settings()
    assert bitsnap.Settings(loss=[]) != bitsnap.Settings()


def test_replace_sets_and_takes_away() -> None:
    settings = bitsnap.bounded().replace(max_depth=3, base="keyframe")
    assert (settings.policy, settings.max_depth, settings.base) == ("bounded", 3, "keyframe")
    assert settings.replace(max_depth=None, base=None) == bitsnap.bounded()
    assert bitsnap.bounded().max_depth is None


def test_the_signature_is_that_of_the_table() -> None:
    settings = bitsnap.Settings()
    fields = [name for name in dir(settings) if not name.startswith("_") and name != "replace"]
    stub = ast.parse(Path(str(_bitsnap.__file__)).with_name("_bitsnap.pyi").read_text())
    (made,) = (node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == "Settings")
    (init,) = (node for node in made.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    assert sorted(argument.arg for argument in init.args.kwonlyargs) == fields
    assert inspect.getdoc(bitsnap.Settings)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"policy": "zip"}, r"policy must be one of lossless, .*, got 'zip'"),
        ({"objective": "best"}, r"objective must be one of ratio, balanced, speed, got 'best'"),
        ({"store_speed": 5}, "store_speed must be 0 or 1000000 to 1000000000000, got 5"),
        ({"store_speed": -1}, "store_speed must be at least 0"),
        ({"store_speed": 1 << 70}, r"store_speed must be at least 0 and below 2\*\*64"),
        ({"base": "next"}, "base must be one of previous, keyframe, got 'next'"),
        ({"max_depth": 33}, "max_depth must be 0 to 32, got 33"),
        ({"loss": ["v=exact"]}, "rule 'v=exact'"),
        ({"codec": "gzip"}, r"codec must be one of raw, .*, got 'gzip'"),
    ],
)
def test_a_value_out_of_range_is_named(given: dict[str, Any], message: str) -> None:
    for make in (bitsnap.Settings, bitsnap.bounded().replace):
        with pytest.raises(bitsnap.InvalidArgumentError, match=message) as caught:
            make(**given)
        assert caught.value.field == next(iter(given))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bitsnap.Settings(policy=5), "policy must be a str, got 5"),  # type: ignore[arg-type]
        (lambda: bitsnap.Settings(max_depth="3"), "max_depth must be an integer, got '3'"),  # type: ignore[arg-type]
        (lambda: bitsnap.Settings(max_depth=1.0), r"max_depth must be an integer, got 1\.0"),  # type: ignore[arg-type]
        (lambda: bitsnap.Settings(loss="a=exact"), "loss must be a list of str, got 'a=exact'"),
        (lambda: bitsnap.Settings(loss=5), "loss must be a list of str, got 5"),  # type: ignore[arg-type]
        (lambda: bitsnap.Settings(depth=5), "there is no setting 'depth'"),  # type: ignore[call-arg]
        (lambda: bitsnap.Settings("bounded"), "Settings"),  # type: ignore[call-arg]
    ],
)
def test_a_value_of_the_wrong_type_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()
