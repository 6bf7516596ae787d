"""Which interface saved a state, by the names at its top: for errors of interfaces that cannot read it."""

from __future__ import annotations

from collections.abc import Collection


def saved_by(names: Collection[object]) -> str:
    """Who saves states with these names, and what reads them."""
    if "torch.distributed.checkpoint" in names:
        return "bitsnap.dcp, whose StorageReader reads it"
    if {"model", "optimizer", "training", "rank"} <= set(names):
        return "bitsnap.torch.TrainingCheckpointer, whose restore() reads it"
    if "pytorch-lightning_version" in names:
        return "bitsnap.lightning, whose load() reads it"
    if {"files", "objects"} <= set(names):
        return "bitsnap.accelerate, whose load_state() reads it"
    if {"files", "optimizer"} <= set(names):
        return "bitsnap.transformers, whose trainers resume from it"
    return "bitsnap.Store or bitsnap.Checkpointer, whose load() and restore() read it"
