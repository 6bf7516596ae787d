"""Adam's numbers in a state that DCP has made flat, as get_optimizer_state_dict() gives it: with groups of parameters,
or, with flatten_optimizer_state_dict, with the numbers of each parameter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from bitsnap._states.adam import AdamSources, AdamValues, values_of_group, values_of_step

_GROUPS, _STATE, _MOMENT = "param_groups", "state", "exp_avg"


def adam_of_shard(given: AdamSources, names: Mapping[str, str], state: Mapping[str, Any]) -> AdamSources:
    """Adam's numbers for the tensors of one rank, from the arguments and from the flat state of all.

    Args:
        names: of the tensors in DCP, by their keys in the state of the shard.
        state: as the planner made it flat.
    """
    found, by_name = adam_in(state), given.by_name
    return AdamSources(
        given.for_all,
        None if by_name is None else lambda key: by_name(names[key]) if key in names else None,
        found={key: found[name] for key, name in names.items() if name in found},
    )


def adam_in(state: Mapping[str, Any]) -> dict[str, AdamValues]:
    """What a flat state says of its first moments, by their names."""
    known: dict[str, AdamValues] = {}
    for prefix, groups in _groups_of(state).items():
        for owner, group in groups.items():
            values = values_of_group(group)
            names = group.get("params")
            for name in names if isinstance(names, list | tuple) else [owner]:
                slots = f"{prefix}{_STATE}.{name}."
                if f"{slots}{_MOMENT}" in state:
                    step = values_of_step(state.get(f"{slots}step"))
                    known[f"{slots}{_MOMENT}"] = step.or_else(values)
    return known


def _groups_of(state: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """The values of groups, or of parameters, by the prefix of the optimizer, and the number or the name."""
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for name, value in state.items():
        for prefix, owner, key in _splits(name):
            groups.setdefault(prefix, defaultdict(dict))[owner][key] = value
    return groups


def _splits(name: str) -> Iterator[tuple[str, str, str]]:
    before, found, after = name.partition(f"{_GROUPS}.")
    if found and (not before or before.endswith(".")):
        owner, _, key = after.rpartition(".")
        yield before, owner, key
