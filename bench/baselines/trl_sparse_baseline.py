"""TRL's sparse weight sync in torch: a 32-bit index and the value of each changed element, 48 bits for bf16."""

from __future__ import annotations

import torch

from bench.baselines.method import ELEMENT_BYTES, Bytes, Found, Method, Payload, Sample

_INTEGERS = {2: torch.int16, 4: torch.int32}


class TrlSparse(Method):
    name = "trl-sparse"
    uses_base = True

    def encode(self, sample: Sample, threads: int) -> Payload:
        assert sample.base is not None
        torch.set_num_threads(threads)
        dtype = _INTEGERS[ELEMENT_BYTES[sample.dtype]]
        new = torch.from_numpy(sample.data).view(dtype)
        old = torch.from_numpy(sample.base).view(dtype)
        indices = (new != old).nonzero(as_tuple=True)[0].to(torch.int32)
        values = new[indices]
        return Payload(indices.nbytes + values.nbytes, (indices, values))

    def decode(self, sample: Sample, payload: Payload, threads: int, out: Bytes) -> None:
        assert sample.base is not None
        torch.set_num_threads(threads)
        target = torch.from_numpy(out)
        target.copy_(torch.from_numpy(sample.base))
        indices, values = payload.body
        target.view(_INTEGERS[ELEMENT_BYTES[sample.dtype]])[indices] = values


def methods() -> Found:
    return [TrlSparse()], {}
