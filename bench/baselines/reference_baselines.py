"""safetensors and torch.save, which do not compress: references, from memory to memory."""

from __future__ import annotations

import io

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


class TorchSave(Method):
    name = "torch.save"
    kind: Kind = "reference"

    def encode(self, sample: Sample, threads: int) -> Payload:
        buffer = io.BytesIO()
        torch.save({"tensor": torch.from_numpy(sample.data)}, buffer)
        return Payload(buffer.getbuffer().nbytes, buffer)

    def decode(self, sample: Sample, payload: Payload, threads: int, out: Bytes) -> None:
        payload.body.seek(0)
        torch.from_numpy(out).copy_(torch.load(payload.body, weights_only=True)["tensor"])


def methods() -> Found:
    return [Safetensors(), TorchSave()], {}
