"""How a state is coded, and bounded loss."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import SupportsFloat, SupportsIndex

from bitsnap import _bitsnap
from bitsnap._arguments import count_of, float_of
from bitsnap._bitsnap import Settings

_LOSSY_POLICIES = ("bounded", "bitsnap")


def bounded(
    *,
    master_bits: SupportsIndex | None = 8,
    v_bits: SupportsIndex | None = 3,
    update_step: SupportsFloat | None = 0.02,
    rules: Iterable[str] = (),
) -> Settings:
    """Settings for bounded loss: masters and the moments of Adam become nearby numbers that take less space.

    Weights, and all tensors without a rule, keep every bit. The file states the bound and the largest error of each
    rounded tensor; inspect() shows them. None for `master_bits`, `v_bits` or `update_step` keeps these tensors exact.
    ``bounded().replace(max_depth=3)`` adds other settings.

    Args:
        master_bits: bits of mantissa that float32 masters keep beyond those of their weights, 0 to 15. The masters
            still round to the same weights.
        v_bits: bits of mantissa that second moments (``exp_avg_sq``) keep, 0 to 22.
        update_step: first moments (``exp_avg``) become multiples of this fraction of the update that they produce,
            above 0 and at most 1. The update changes by at most half of it, besides the error of the second moment.
            bitsnap computes updates with Adam's betas, eps and step; see Adam.
        rules: rules that come before these, as in Settings(loss=...).

    Raises:
        InvalidArgumentError: a number is out of range, or a text is not a rule.
        TypeError: an argument has the wrong type.
    """
    if isinstance(rules, str) or not isinstance(rules, Iterable):
        raise TypeError(f"rules must be a list of str, got {rules!r}")
    own = [
        "master=exact" if master_bits is None else f"master=master_bits:{count_of(master_bits, 'master_bits')}",
        "exp_avg_sq=exact" if v_bits is None else f"exp_avg_sq=mantissa_bits:{count_of(v_bits, 'v_bits')}",
        "exp_avg=exact" if update_step is None else f"exp_avg=update_step:{float_of(update_step, 'update_step')!r}",
    ]
    return Settings(policy="bounded", loss=[*rules, *own])


def settings_of(settings: Settings | str | None) -> Settings:
    """The settings for an argument: a str names a policy."""
    if settings is None or isinstance(settings, str):
        return Settings(policy=settings)  # type: ignore[arg-type]  # checked there
    if not isinstance(settings, Settings):
        raise TypeError(f"settings must be bitsnap.Settings, the name of a policy, or None, got {settings!r}")
    return settings


def may_lose(settings: Settings) -> bool:
    return settings.policy in _LOSSY_POLICIES or bool(settings.loss)


def warn_of_idle_rules(settings: Settings, tensors: Iterable[tuple[str, str, str | None]], stacklevel: int) -> None:
    """Warns of each rule of the caller that matches no tensor. `tensors` are names, dtypes and roles."""
    if settings.loss:
        for rule in _bitsnap.idle_rules(settings, list(tensors)):
            warnings.warn(f"the rule {rule!r} matches no tensor of the state", stacklevel=stacklevel + 1)
