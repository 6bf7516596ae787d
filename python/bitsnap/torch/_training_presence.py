"""What a training was given, compared with what a checkpoint has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from bitsnap.errors import InvalidArgumentError


class Given(NamedTuple):
    """How much there is of each argument of bitsnap.torch.TrainingCheckpointer; the names, of `extra`."""

    optimizer: int
    scheduler: int
    dataloader: bool
    extra: list[str]
    rng: bool


def given_in(values: Mapping[str, Any], extra: Iterable[str]) -> Given:
    """What a checkpoint has. `extra`: names of values of the program that are not among the values."""
    training, rank = values["training"], values["rank"]
    return Given(
        len(training["optimizer"]),
        len(training["scheduler"]),
        rank["dataloader"] is not None,
        [*dict.fromkeys([*map(str, training.get("extra") or {}), *extra])],
        rank["rng"] is not None,
    )


def compared(own: Given, saved: Given, optional: Set[str]) -> tuple[set[str], list[str]]:
    """The arguments that only one of both has, and notes about those that do not make the training go on wrongly.

    Random generators, and a data loader of which no state was saved, begin anew without harm to what was learned.

    Raises:
        InvalidArgumentError: one has an argument that the other has not, and it is not in `optional`.
    """
    one_sided = {name for name, mine, other in zip(Given._fields, own, saved, strict=True) if bool(mine) != bool(other)}
    notes = []
    for name in sorted(one_sided - optional):
        if name == "rng" or (name == "dataloader" and own.dataloader):
            notes.append(
                f"{name}: the checkpoint has no state of it, and it stays as it is"
                if getattr(own, name)
                else f"{name}: its state in the checkpoint is not restored"
            )
            continue
        what = "which would begin anew" if getattr(own, name) else "whose state would be left out"
        raise InvalidArgumentError(
            f"{_difference(name, own, saved)}, {what}: make the Checkpointer with the {name} of the checkpoint, or "
            f"call restore(optional=[{name!r}])"
        )
    return one_sided, notes


def compared_groups(
    groups: Sequence[Sequence[str]], found: Sequence[Sequence[str]], frozen: Set[str]
) -> tuple[set[str], set[str]]:
    """Compares the groups of parameters of the optimizers with those of a checkpoint, by names.

    Args:
        frozen: the parameters that the training does not change.

    Returns:
        the parameters that no optimizer of the checkpoint had, and the frozen ones that none has now.

    Raises:
        InvalidArgumentError: the groups differ otherwise.
    """
    own, others = ({name for names in each for name in names} for each in (groups, found))
    new, left = own - others, (others - own) & frozen
    common = [[name for name in names if name not in new] for names in groups]
    if common == [[name for name in names if name not in left] for names in found]:
        return new, left
    if len(groups) != len(found):
        raise InvalidArgumentError(f"the optimizers have {len(groups)} groups of parameters, saved {len(found)}")
    number = next(i for i, (a, b) in enumerate(zip(groups, found, strict=True)) if a != b)
    differing = [*dict.fromkeys(groups[number]).keys() ^ dict.fromkeys(found[number]).keys()][:4]
    raise InvalidArgumentError(
        f"group {number} of the optimizers has other parameters, or in another order, than the checkpoint: "
        f"{len(groups[number])}, saved {len(found[number])}{', differing in ' if differing else ''}"
        f"{', '.join(sorted(differing))}"
    )


def _difference(name: str, own: Given, saved: Given) -> str:
    if name == "extra":
        return f"extra has {sorted(own.extra)}, the checkpoint {sorted(saved.extra)}"
    if name == "dataloader":
        return "there is no data loader, saved one"
    return f"there are {getattr(own, name)} {name}s, saved {getattr(saved, name)}"
