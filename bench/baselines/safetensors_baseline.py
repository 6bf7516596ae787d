"""safetensors, which does not compress: a reference, from memory to memory."""

from __future__ import annotations

import torch
from safetensors.torch import load, save

from bench.baselines.method import Bytes, Found, Kind, Method, Payload, Sample


class Safetensors(Method):
    name = "safetensors"
    kind: Kind = "reference"

    def encode(self, sample: Sample, threads: int) -> Payload:
        made = save({"tensor": torch.from_numpy(sample.data)})
        return Payload(len(made), made)

    def decode(self, sample: Sample, payload: Payload, threads: int, out: Bytes) -> None:
        torch.from_numpy(out).copy_(load(payload.body)["tensor"])


def methods() -> Found:
    return [Safetensors()], {}
