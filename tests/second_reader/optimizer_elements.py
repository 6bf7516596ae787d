"""src/codec/optimizer_step/spec.md: predicts a state by an optimizer step from the state before."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from second_reader.reader_errors import Truncated, require

Floats = npt.NDArray[np.float32]

# By form: the inputs, "b" of a base and "p" of a peer.
_FORM_INPUTS = ("bbp", "bpp", "bp")
INPUTS = tuple(sorted(_FORM_INPUTS))
HEADER_BYTES = 13


def expected_of_step(payload: bytes, kinds: str, inputs: list[bytes]) -> bytes:
    """The elements predicted by the parameters at the front of the payload."""
    if len(payload) < HEADER_BYTES:
        raise Truncated(f"optimizer_step payload of {len(payload)} bytes")
    form = payload[0]
    require(form < len(_FORM_INPUTS), f"optimizer_step: form {form}")
    require(_FORM_INPUTS[form] == kinds, f"optimizer_step: form {form} with the inputs {kinds!r}")
    keep, step, other = (np.float32(number) for number in np.frombuffer(payload[1:HEADER_BYTES], "<f4"))
    base, first, *rest = (np.frombuffer(data, "<f4") for data in inputs)
    with np.errstate(all="ignore"):
        if form == 0:
            gradient = (rest[0] - first) / other + first
            expected = base * keep + step * gradient * gradient
        elif form == 1:
            expected = base * keep - step * first / (np.sqrt(rest[0]) + other)
        else:
            expected = base * keep - step * first
    assert expected.dtype == np.float32
    words = expected.view("<u4")
    return np.where(np.isnan(expected), base.view("<u4"), words).astype("<u4").tobytes()
