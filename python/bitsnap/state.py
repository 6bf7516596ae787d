"""Loading states: any nesting of containers, tensors and values, without pickle unless the caller asks for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

import numpy as np

from bitsnap._bitsnap import Snapshot as NativeSnapshot, TensorInfo, TensorInfos, TensorRef, WholeState
from bitsnap._common import (
    Bases,
    Device,
    KeyPath,
    PathLike,
    Progress,
    alike,
    brief,
    has_torch,
    invalid,
    keystr,
    may_pickle,
)
from bitsnap._states.program_values import (
    PackedValue,
    PickledValue,
    check_consent,
    check_registered,
    packed,
    registration_of,
)
from bitsnap._states.tensors import Box, box_around, local_part, tensor_of
from bitsnap._states.tree import (
    Question,
    Reference,
    places,
    program_values,
    prune,
    rebuild,
    references,
    without_collection,
)
from bitsnap._states.typed_values import StoredValue, decode, is_container, is_mapping, items_of, like
from bitsnap._tensors.arrays import Framework, copy_into, gpu_of, is_tensor, note_filled, target_of
from bitsnap._tensors.reading import Filled, Job, Loader, canonical, check_apart, device_of
from bitsnap.errors import BitsnapError, CorruptError, InvalidArgumentError, NotFoundError
from bitsnap.snapshot import Snapshot, damaged_tensors, explained_load, names_of, native_state, warn_of_damage

if TYPE_CHECKING:
    import torch

# The part of a state to load: dotted names, paths as tuples of keys, or a function of a dotted name.
Keys: TypeAlias = str | Iterable[str | tuple[Any, ...]] | Callable[[str], bool]

P = ParamSpec("P")
T = TypeVar("T")


def only_path(function: Callable[P, T]) -> Callable[P, T]:
    """Explains a second argument without a name, which may be meant as a step."""

    @functools.wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> T:
        if len(args) > 1:
            raise TypeError(
                f"{function.__name__}() takes one argument without a name, the path, got also {brief(args[1])}; a "
                f"checkpoint of a run has a path like 'run@1000', and all other arguments need their names, as in into="
            )
        return function(*args, **options)

    return checked


# Longer lists of keys are cut in messages.
_LISTED_KEYS = 4


@only_path
@without_collection()
def load(
    path: PathLike | Snapshot,
    *,
    into: Any = None,
    keys: Keys | None = None,
    strict: bool = True,
    map_location: Device | None = None,
    allow_pickle: bool = False,
    bases: Bases = (),
    partial: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> Any:
    """Loads a state of save(). A file of save_file() or compress() gives a flat dict of tensors.

    Tied tensors are one object. Without torch, tensors are numpy arrays.

    Args:
        path: the file, or an open snapshot, or the name of a checkpoint of a store as the command takes it: "run@500",
            "run@latest", "run@best" by a label, or "run:lr2@500" in a branch.
        into: a state to fill. Each of its tensors and arrays receives the tensor at the same place of the file, which
            must have the same dtype and shape; strides, device and requires_grad may differ. Its other values are not
            used: the returned state has those of the file. Every dtype and shape is checked before anything is
            written, and that no two of the tensors share memory, unless they are tied in the file, too; if the file
            turns out to be damaged, some tensors have been filled.
        keys: the part of the state to load: dotted names, each with all that is below it, such as "model" or
            "optimizer.state"; or a function of such a name. If two places have the same name, as in
            ``{"a.b": 1, "a": {"b": 2}}``, give the path of one as a tuple in the list: ``keys=[("a", "b")]``. Dicts are
            reduced to what is selected; lists, tuples and registered values are loaded completely if any part of them
            is selected.
        strict: with `into`, raise an error if the tensors of `into` and of the file (after `keys`) are not the same.
            False leaves additional tensors of `into` unchanged and loads additional tensors of the file as new ones.
        map_location: the device of new torch tensors; None for the CPU. The file does not store devices.
        allow_pickle: unpickle values that were saved with ``allow_pickle=True``, which runs code that the file
            chooses: only for files that you trust. False raises an error if there are any, and runs nothing.
        bases: files or directories that are searched for the bases of the snapshot, besides its directory.
        partial: load what can be read of a damaged file, and name the rest in a DamageWarning. Decodes all twice.
            Dicts lose the entries of damaged tensors, lists and tuples hold None instead, and registered and pickled
            values are left out as a whole. Damaged tensors of `into` stay as they are.
        threads: 0 for all that the process may use.
        progress: called with (done bytes, total bytes), with `partial` once more from the start; returning False
            cancels.

    Returns:
        the state, with the tensors of `into` in their places.

    Raises:
        NotFoundError: the file or one of its bases does not exist, or nothing of `keys`.
        InvalidArgumentError: `into` does not fit; the message names the keys. Or two places have a name of `keys`. Or
            the tag of a value is not registered (see register_value()), or a value is pickled and `allow_pickle` is
            False; the message names the place. Or the snapshot holds a folder, which open_folder() opens.
        CorruptError, TruncatedError: the file is damaged; with `partial`, all its tensors are.
    """
    may_unpickle = may_pickle(allow_pickle)
    with explained_load(path, "load", partial):
        native = native_state(path, bases)
        if partial and isinstance(native, WholeState):
            raise InvalidArgumentError(f"{path}: partial=True reads single shards: Store.load(shard=...)")
        tree = _tree_of(native, keys, may_unpickle)
        lost: set[KeyPath] = set()
        if partial and not isinstance(native, WholeState):
            tree, lost = _without_damaged(tree, damaged_tensors(native, threads, progress), stacklevel=3)
        return _load(native, tree, lost, into, strict, map_location, threads, progress)


@without_collection()
def load_whole(
    native: WholeState,
    *,
    into: Any,
    keys: Keys | None,
    strict: bool,
    map_location: Device | None,
    allow_pickle: bool,
    threads: int,
    progress: Progress | None,
) -> Any:
    """Loads the state of a checkpoint of several shards. The arguments are as in load()."""
    tree = _tree_of(native, keys, may_pickle(allow_pickle))
    return _load(native, tree, set(), into, strict, map_location, threads, progress)


def _load(
    native: NativeSnapshot | WholeState,
    tree: Any,
    lost: set[KeyPath],
    into: Any,
    strict: bool,
    map_location: Device | None,
    threads: int,
    progress: Progress | None,
) -> Any:
    filled: dict[KeyPath, Any] = {}
    loader = Loader(native)
    if into is not None:
        filled = _match(native.tensors, into, strict, tree, lost, loader)
    return _load_tree(loader, tree, filled, native, map_location, threads, progress)


def _load_tree(
    loader: Loader,
    tree: Any,
    filled: Mapping[KeyPath, Any],
    native: NativeSnapshot | WholeState,
    map_location: Device | None,
    threads: int,
    progress: Progress | None,
) -> Any:
    """The state of the tree, with the tensors in `filled` at their places."""
    tensors: Framework = "pt" if has_torch() else "np"
    device = device_of(map_location, tensors)

    def want(reference: Reference) -> tuple[int, str]:
        return loader.want(reference.index, *((tensors, device) if reference.kind == "tensor" else ("np", None)))

    def give(reference: Reference, place: KeyPath) -> Any:
        if place in filled:
            return filled[place]
        return _value_of(loader.get(want(reference)), reference, place, native.tensors)

    for place, reference in references(tree):
        if isinstance(reference, StoredValue):
            _check_stored(reference, native.tensors[reference.index], place)
        if place not in filled:
            want(reference)
    loader.run(threads, progress)
    for place, value in filled.items():
        note_filled(tensor_of(local_part(value, place)))
    return rebuild(tree, give)


def _tree_of(native: NativeSnapshot | WholeState, keys: Keys | None, may_unpickle: bool) -> Any:
    """The part of the tree to load, which can be loaded by this process and its caller."""
    if native.has_tree:
        tree = native.tree(decode)
    else:
        tree = {name: TensorRef(i, "tensor") for i, name in enumerate(names_of(native))}
    if keys is not None:
        tree = _select(tree, keys)
    for place, value in program_values(tree):
        if isinstance(value, PickledValue):
            check_consent(value, may_unpickle, keystr(place, "state"))
        else:
            check_registered(value, keystr(place, "state"))
    return tree


def _check_stored(reference: StoredValue, info: TensorInfo, place: KeyPath) -> None:
    if info.dtype != "U8" or len(info.shape) != 1:
        raise CorruptError(
            f"{keystr(place, 'state')} is a {reference.kind} stored as a tensor of dtype {info.dtype} and shape "
            f"{info.shape}, not of dtype U8 and one dimension"
        )


def _value_of(value: Any, reference: Reference, place: KeyPath, infos: TensorInfos) -> Any:
    if isinstance(reference, StoredValue):
        return _value_in(value, reference, place)
    return value[()] if reference.kind == "scalar" else box_around(value, infos[reference.index])


def _value_in(content: np.ndarray[Any, Any], reference: StoredValue, place: KeyPath) -> bytes | str:
    if reference.kind == "bytes":
        return content.tobytes()
    try:
        return str(content.data, "utf-8")
    except UnicodeDecodeError as error:
        raise CorruptError(f"{keystr(place, 'state')} is a str that is not stored as UTF-8: {error}") from None


def _select(tree: Any, keys: Keys) -> Any:
    if callable(keys):
        selected = prune(tree, lambda name, _: keys(name), lambda _name, _path: True)
        if selected is ...:
            raise _no_such_keys("the function selects nothing of the snapshot")
        return selected
    wanted = dict.fromkeys([keys] if isinstance(keys, str) else keys)
    leads_on = _above(wanted)
    has_names = any(isinstance(each, str) for each in wanted)
    found: dict[Any, KeyPath] = {}  # by what was wanted; the path of the place with exactly that name, if there is one
    chosen: set[KeyPath] = set()
    for name, path in places(tree, leads_on):
        for prefix in _prefixes(name) if has_names else ():
            if prefix in wanted:
                chosen.add(path)
                exact = path if prefix == name else ()
                if exact and found.get(name):
                    raise invalid(
                        "keys",
                        f"holds {name!r}, which names both {keystr(found[name], 'state')} and "
                        f"{keystr(path, 'state')}; give the path of one as a tuple, as in keys=[{path!r}]",
                    )
                found[prefix] = exact or found.get(prefix, ())
        if path in wanted:
            chosen.add(path)
            found[path] = path
    missed = [each for each in wanted if each not in found]
    if missed:
        hint = alike(str(missed[0]), [name for name, _ in places(tree, lambda *_: True)])
        if not hint and isinstance(tree, Mapping):
            hint = f"; it holds {', '.join(map(repr, list(tree)[:8]))}"
        raise _no_such_keys(f"the snapshot holds nothing under {', '.join(map(repr, missed))}{hint}")
    selected = prune(tree, lambda _, path: path in chosen, leads_on)
    return {} if selected is ... else selected


def _above(wanted: Iterable[Any]) -> Question:
    """Whether a value lies above one with a wanted name or path."""
    names: set[str] = set()
    paths: set[KeyPath] = set()
    for each in wanted:
        if isinstance(each, str):
            names.update(prefix for prefix in _prefixes(each) if prefix != each)
        elif isinstance(each, tuple):
            paths.update(each[:end] for end in range(len(each)))
    return lambda name, path: name in names or path in paths


def _prefixes(name: str) -> Iterator[str]:
    """A dotted name, and the names that it is below."""
    end = len(name)
    while end >= 0:
        yield name[:end]
        end = name.rfind(".", 0, end)


def _no_such_keys(problem: str) -> NotFoundError:
    error = NotFoundError(f"keys: {problem}")
    error.field = "keys"
    return error


def _match(
    infos: TensorInfos, into: Any, strict: bool, tree: Any, lost: set[KeyPath], loader: Loader
) -> dict[KeyPath, Any]:
    """Matches the tensors of a file with those of `into` that are not lost: checks every dtype and shape, then adds the
    tensors to fill to the loader; returns them by path."""
    filled: dict[KeyPath, Any] = {}
    # What a pickled value holds is in its pickle.
    pickled = {path for path, value in program_values(tree) if isinstance(value, PickledValue)}
    targets = dict(_tensors_of(into, (), pickled))
    found = {path: reference for path, reference in references(tree) if reference.kind in ("tensor", "array")}
    missing = [path for path in targets if path not in found and path not in lost]
    unexpected = [path for path in found if path not in targets]
    if strict and (missing or unexpected):
        raise InvalidArgumentError(_describe(missing, unexpected))

    jobs: list[Job] = []
    all_filled: list[Filled] = []
    taken: dict[Hashable, tuple[int, KeyPath]] = {}
    misfits: list[BitsnapError] = []
    for path, reference in found.items():
        if path not in targets:
            continue
        where = keystr(path, "into")
        info = infos[reference.index]
        try:
            part = local_part(targets[path], path)
            _check_box(part, part is not targets[path], info, where)
            target = target_of(tensor_of(part), info, where)
        except BitsnapError as error:
            misfits.append(error)
            continue
        filled[path] = targets[path]
        index = canonical(infos, reference.index)
        if target.identity is not None:
            first, other = taken.setdefault(target.identity, (index, path))
            if other is not path and first != index:
                raise InvalidArgumentError(
                    f"{keystr(other, 'into')} and {where} are the same memory, "
                    "but two different tensors in the snapshot"
                )
            if other is not path:
                continue
        framework: Framework = "pt" if is_tensor(target.value) else "np"
        deliver = functools.partial(copy_into, target, where=where)
        jobs.append(Job(index, infos[index], target.place, framework, deliver, gpu_of(target.value)))
        all_filled.append(Filled(index, target, where))
    if misfits:
        raise _all_misfits(misfits)
    check_apart(all_filled)
    for job in jobs:
        loader.add(job)
    return filled


def _check_box(target: Any, is_of_dtensor: bool, info: TensorInfo, where: str) -> None:
    is_box = isinstance(target, Box)
    expected = (target.global_shape, target.offset) if is_box else (None, None)
    # A plain tensor may be what one process holds.
    if (is_box or is_of_dtensor) and expected != (info.global_shape, info.offset):
        wanted = f"a box at {target.offset} in a tensor of shape {target.global_shape}" if is_box else "a whole tensor"
        found = "no box" if info.offset is None else f"a box at {info.offset} in a tensor of shape {info.global_shape}"
        raise InvalidArgumentError(
            f"{where} is {wanted}, but the snapshot holds {found}; Store.read_into() reads any box"
        )


def _tensors_of(value: Any, path: KeyPath, left_out: set[KeyPath]) -> Iterable[tuple[KeyPath, torch.Tensor | Any]]:
    if path in left_out:
        return
    registration = registration_of(type(value))
    if registration is not None:
        yield from _tensors_of(packed(value, registration, lambda: keystr(path, "into")), path, left_out)
        return
    if is_tensor(value) or isinstance(value, np.ndarray | Box):
        yield path, value
    for key, item in items_of(value):
        yield from _tensors_of(item, (*path, key), left_out)


def _all_misfits(errors: list[BitsnapError]) -> BitsnapError:
    """The first error, with the next ones and the number of the others."""
    if len(errors) > 1:
        lines = [f"{len(errors)} tensors of `into` do not fit:", *map(str, errors[:_LISTED_KEYS])]
        if len(errors) > _LISTED_KEYS:
            lines.append(f"and {len(errors) - _LISTED_KEYS} more")
        errors[0].args = ("\n  ".join(lines),)
    return errors[0]


def _describe(missing: list[KeyPath], unexpected: list[KeyPath]) -> str:
    lines = ["the tensors of `into` and of the snapshot differ (strict=False takes what fits; keys= selects)"]
    for what, paths in (("not in the snapshot", missing), ("not in `into`", unexpected)):
        if paths:
            shown = ", ".join(keystr(path, "state") for path in paths[:_LISTED_KEYS])
            more = f" and {len(paths) - _LISTED_KEYS} more" if len(paths) > _LISTED_KEYS else ""
            lines.append(f"  {what}: {shown}{more}")
    return "\n".join(lines)


def _without_damaged(tree: Any, damaged: Mapping[int, BitsnapError], stacklevel: int) -> tuple[Any, set[KeyPath]]:
    """The loaded tree without the damaged tensors, and the places that it lost. Warns of them.

    A dict loses the entry, a list or tuple holds None instead, and a value of a program is left out as a whole.

    Raises:
        CorruptError, TruncatedError, ...: the first error, if nothing is left.
    """
    places = dict(references(tree))
    found = {keystr(path, "state"): damaged[each.index] for path, each in places.items() if each.index in damaged}
    if not found:
        return tree, set()
    left = _without(tree, damaged)
    kept = set() if left is ... else {path for path, _ in references(left)}
    if not kept:
        raise next(iter(found.values()))
    warn_of_damage(found, stacklevel + 1)
    return left, places.keys() - kept


def _without(tree: Any, damaged: Mapping[int, BitsnapError]) -> Any:
    """Ellipsis if nothing is left of the value."""
    if isinstance(tree, Reference):
        return ... if tree.index in damaged else tree
    if isinstance(tree, PackedValue | PickledValue):
        return ... if any(each.index in damaged for _, each in references(tree)) else tree
    if not is_container(tree):
        return tree
    items = [(key, _without(item, damaged)) for key, item in items_of(tree)]
    if is_mapping(tree):
        return like(tree, [(key, item) for key, item in items if item is not ...])
    return like(tree, [(key, None if item is ... else item) for key, item in items])
