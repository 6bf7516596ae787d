"""src/codec/optimizer_step/spec.md: predicts a state by an optimizer step from the state before."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from second_reader.reader_errors import Truncated, require

Floats = npt.NDArray[np.float32]

# By form: the inputs, "b" of a base and "p" of a peer. The last two forms are for BF16 only.
_FORM_INPUTS = ("bbp", "bpp", "bp", "bbp", "bpp")
_F32_FORMS = 3
INPUTS = tuple(sorted(set(_FORM_INPUTS)))


def expected_of_step(payload: bytes, dtype: str, kinds: str, inputs: list[bytes]) -> tuple[bytes, int]:
    """The elements predicted by the constants at the front of the payload, and the size of this front."""
    if not payload:
        raise Truncated("optimizer_step payload without a form")
    form = payload[0]
    require(form < (len(_FORM_INPUTS) if dtype == "BF16" else _F32_FORMS), f"optimizer_step: form {form}")
    require(_FORM_INPUTS[form] == kinds, f"optimizer_step: form {form} with the inputs {kinds!r}")
    size = 17 if form == 4 else 13
    if len(payload) < size:
        raise Truncated(f"optimizer_step payload of {len(payload)} bytes")
    constants = [np.float32(number) for number in np.frombuffer(payload[1:size], "<f4")]
    with np.errstate(all="ignore"):
        if dtype == "F32":
            expected = _expected(form, constants, [np.frombuffer(data, "<f4") for data in inputs])
        else:
            expected = _rounded(_expected_of_bf16(form, constants, [_widened(data) for data in inputs]))
    assert expected.dtype == np.float32
    words = expected.view("<u4") if dtype == "F32" else (expected.view("<u4") >> 16).astype("<u2")
    base = np.frombuffer(inputs[0], words.dtype)
    return np.where(np.isnan(expected), base, words).astype(words.dtype).tobytes(), size


def _expected(form: int, constants: list[np.float32], inputs: list[Floats]) -> Floats:
    keep, step, other = constants
    base, first, *rest = inputs
    if form == 0:
        gradient = (rest[0] - first) / other + first
        return base * keep + step * gradient * gradient
    if form == 1:
        root: Floats = np.sqrt(rest[0])
        return base * keep - step * first / (root + other)
    return base * keep - step * first


def _expected_of_bf16(form: int, constants: list[np.float32], inputs: list[Floats]) -> Floats:
    keep, step, other = constants[:3]
    base, first, *rest = inputs
    if form in (0, 3):
        gradient = _rounded((rest[0] - first) / other + first)
        kept = base * keep
        return (_rounded(kept) if form == 3 else kept) + step * gradient * gradient
    if form == 4:
        root = _rounded(_rounded(_rounded(np.sqrt(rest[0])) / constants[3]) + other)
        return _rounded(base * keep) - step * first / root
    return _expected(form, constants, inputs)


def _widened(data: bytes) -> Floats:
    return (np.frombuffer(data, "<u2").astype("<u4") << np.uint32(16)).view(np.float32)


def _rounded(numbers: Floats) -> Floats:
    """To BF16, to nearest, ties to even; NaNs stay NaNs."""
    bits = numbers.view("<u4")
    nearest = (bits + np.uint32(0x7FFF) + (bits >> 16 & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(numbers), bits, nearest).astype("<u4").view(np.float32)
