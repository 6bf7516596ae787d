"""Methods of a store, by what they are about: labels, small files, pruning, verification and repair of checkpoints; and
global tensors, of which boxes are read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, SupportsIndex, TypeAlias

from bitsnap._bitsnap import (
    GlobalTensor,
    PruneOptions,
    PruneReport,
    RepairReport,
    Retention,
    RollbackReport,
    Store as NativeStore,
    StoreDamage,
    StoreVerification,
)
from bitsnap._common import (
    LARGEST_COUNT,
    PathLike,
    Progress,
    alike,
    brief,
    check_callable,
    label_of,
    labels_of,
    native_home,
    number_of,
    positive_of,
    text_of,
)
from bitsnap._display import html_of_store
from bitsnap._tensors.arrays import (
    AnyTensor,
    Source,
    Strided,
    Target,
    copy_into,
    fillable,
    gpu_of,
    named_source_of,
    note_filled,
)
from bitsnap._tensors.device_copies import PinnedBatches
from bitsnap._tensors.reading import Filled, check_apart, staged_batches
from bitsnap.agents import explained_holder
from bitsnap.errors import InvalidArgumentError, NotFoundError
from bitsnap.snapshot import describe_damage


def step_or_newest(step: Any) -> int | None:
    """Of an argument that is None for the newest checkpoint."""
    if isinstance(step, str):
        raise TypeError(
            f"step must be an integer, or None for the newest checkpoint, got {brief(step)}; of a label, "
            f"find({brief(step)}) gives the step"
        )
    return None if step is None else number_of(step, "step")


Files: TypeAlias = Mapping[str, bytes | bytearray | memoryview]


def files_of(files: Any) -> list[tuple[str, bytes]]:
    """Checked, as the extension takes it."""
    if files is None:
        return []
    if not isinstance(files, Mapping):
        raise TypeError(f"files must be a dict of str to bytes, got {brief(files)}")
    checked = []
    for name, content in files.items():
        if not isinstance(content, bytes | bytearray | memoryview):
            raise TypeError(f"files[{name!r}] must be bytes, got {brief(content)}")
        checked.append((label_of(name, "the name of a file"), bytes(content)))
    return checked


Reencode: TypeAlias = Literal["auto", "never", "always"]


class StoreManagement:
    """Part of Store, which has the attributes."""

    _native: NativeStore
    _threads: int

    def _repr_html_(self) -> str:
        checkpoints = [] if self._native.is_closed else self._native.checkpoints()
        return html_of_store(os.fsdecode(self._native.path), checkpoints)

    def label(self, step: SupportsIndex, label: str | Iterable[str]) -> None:
        """Gives a checkpoint a label, such as "best" or "epoch=3-val=0.12", or several.

        A label names at most one checkpoint of the store. If it names another one, it moves to this step, in one
        moment: every reader sees the one or the other. A checkpoint may have many labels. They disappear when it is
        pruned or rolled back.

        Args:
            step: of the checkpoint.
            label: 1 to 255 bytes in UTF-8, without control characters, and not digits or spaces alone.

        Raises:
            NotFoundError: there is no checkpoint of that step; the message names the nearest steps.
            InvalidArgumentError: a label has another length or other characters, or the store is read_only.
            BusyError, IoError: as save() does.
        """
        self._native.label(number_of(step, "step"), labels_of(label, "label"))

    def unlabel(self, label: str) -> None:
        """Removes a label. Its checkpoint stays.

        Raises:
            NotFoundError: no checkpoint has the label; the message names similar ones.
            BusyError, IoError: as save() does.
        """
        self._native.unlabel(label_of(label, "label"))

    def find(self, label: str) -> int:
        """The step of the checkpoint with this label: ``store.load(store.find("best"))``.

        Raises:
            NotFoundError: no checkpoint has the label; the message names similar ones. If there may be none, ask
                labels(): ``store.labels().get("last")``.
            CorruptError: the record of the labels is damaged; repair() removes it.
        """
        return self._native.find(label_of(label, "label"))

    def best(self, metric: str, *, highest: bool = False) -> int:
        """The step of the checkpoint with the lowest value of a metric: ``store.load(store.best("loss"))``.

        Args:
            metric: one that save() was given. Values that are NaN do not count; of equal ones the newest wins.
            highest: find the highest value.

        Raises:
            NotFoundError: no checkpoint has the metric; the message names those that there are.
            IoError: the store cannot be read.
        """
        name, sign = text_of(metric, "metric"), -1 if highest else 1
        checkpoints = list(self._native.checkpoints())
        values = [(sign * each.metrics[name], -each.step) for each in checkpoints if name in each.metrics]
        values = [(value, step) for value, step in values if not math.isnan(value)]
        if values:
            return -min(values)[1]
        known = sorted({each for checkpoint in checkpoints for each in checkpoint.metrics})
        others = "; none has metrics, which save(step, state, metrics={...}) gives it"
        if known:
            others = alike(name, known) or f"; there is {', '.join(known)}"
        raise NotFoundError(f"{os.fsdecode(self._native.path)}: no checkpoint has the metric {name!r}{others}")

    def labels(self) -> dict[str, int]:
        """All labels with their steps, in order of their bytes in UTF-8."""
        return dict(self._native.labels())

    def files(self, step: SupportsIndex) -> dict[str, bytes]:
        """The small files that save() or commit() was given with the checkpoint, by name; empty if there are none.

        Example:
            config = json.loads(store.files(1000)["config.json"])

        Raises:
            NotFoundError: there is no checkpoint of that step; the message names the nearest steps.
            CorruptError, TruncatedError: the files are damaged. The state can be loaded nevertheless.
        """
        return self._native.files(number_of(step, "step"))

    def prune(
        self,
        keep_last: int | None = None,
        keep_every: int | None = None,
        keep: Iterable[SupportsIndex] = (),
        *,
        keep_labelled: bool = False,
        reencode: Reencode = "auto",
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> PruneReport:
        """Removes checkpoints. A checkpoint stays if any argument keeps it; the newest one always stays.

        Args:
            keep_last: keep the N newest.
            keep_every: keep the steps that are multiples of this.
            keep: keep these steps.
            keep_labelled: keep those with a label.
            reencode: for pruned checkpoints that others are coded against: "auto" rewrites the others without them, if
                that frees more bytes than it writes and breaks up no chain; "never" leaves their files until nothing
                needs them; "always" rewrites the others, as keyframes if necessary.
            dry_run: report what would be done, and change nothing.
            progress: called with (done bytes, total bytes) of what is rewritten; returning False cancels, but undoes
                nothing.

        Raises:
            InvalidArgumentError: no argument says what to keep.
        """
        steps = [number_of(step, "keep") for step in keep]
        if keep_last is None and keep_every is None and not steps and not keep_labelled:
            raise InvalidArgumentError("say what to keep: keep_last, keep_every, keep or keep_labelled")
        return self._native.prune(
            Retention(
                keep_last=positive_of(keep_last, "keep_last"),
                keep_every=positive_of(keep_every, "keep_every"),
                keep=steps,
                keep_labelled=bool(keep_labelled),
            ),
            PruneOptions(reencode=text_of(reencode, "reencode"), dry_run=bool(dry_run)),
            threads=self._threads,
            progress=progress,
        )

    def remove(
        self,
        steps: SupportsIndex | Iterable[SupportsIndex],
        *,
        reencode: Reencode = "auto",
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> PruneReport:
        """Removes these checkpoints, also those with a label, and keeps all others.

        The files of a removed checkpoint stay as long as others are coded against it, as in prune(). If the newest one
        is removed, the one before it becomes the newest, as after rollback().

        Args:
            steps: of the checkpoints; one, or several.
            reencode, dry_run, progress: as in prune().

        Raises:
            NotFoundError: there is no checkpoint of one of the steps; the message names the nearest ones. Nothing is
                removed.
            InvalidArgumentError: no undamaged checkpoint would stay.
        """
        numbers = [number_of(step, "steps") for step in (steps if isinstance(steps, Iterable) else (steps,))]
        return self._native.remove(
            numbers,
            PruneOptions(reencode=text_of(reencode, "reencode"), dry_run=bool(dry_run)),
            threads=self._threads,
            progress=progress,
        )

    def rollback(self, step: SupportsIndex, *, keep_as: str | None = None) -> RollbackReport:
        """Removes all checkpoints after `step`, newest first, so that the training can continue from there.

        Args:
            step: of the checkpoint that becomes the newest.
            keep_as: first make a branch of this name with this checkpoint and all that are removed.

        Raises:
            NotFoundError: there is no checkpoint of that step.
            InvalidArgumentError: what can be read of a checkpoint that a repair keeps as damaged needs a later step.
                Or there is such a branch.
        """
        number = number_of(step, "step")
        if keep_as is not None and any(each > number for each in self._native.steps()):
            self._native.make_branch(
                label_of(keep_as, "keep_as"), number, with_later=True, threads=self._threads, progress=None
            )
        return self._native.rollback(number)

    def damages(
        self, *, steps: Iterable[SupportsIndex] = (), decode: bool = True, progress: Progress | None = None
    ) -> list[StoreDamage]:
        """Reads every byte as verify() does, and returns all damage by step."""
        return self._verified(steps, decode, progress).damages

    def verify(
        self, *, steps: Iterable[SupportsIndex] = (), decode: bool = True, progress: Progress | None = None
    ) -> StoreVerification:
        """Reads every byte of the checkpoints and checks it against its hashes.

        Args:
            steps: these checkpoints; all of them if empty.
            decode: decode every chunk, too. False finds all damage to the stored bytes, and is faster.
            progress: called with (done bytes, total bytes); returning False cancels.

        Raises:
            CorruptError, TruncatedError, ...: the class of the first damage. The message lists all damage.
        """
        found = self._verified(steps, decode, progress)
        if found.damages:
            path = os.fsdecode(self._native.path)
            raise type(found.damages[0].error)(describe_damage(path, [str(each) for each in found.damages]))
        return found

    def _verified(self, steps: Iterable[SupportsIndex], decode: bool, progress: Progress | None) -> StoreVerification:
        numbers = [number_of(step, "steps") for step in steps]
        return self._native.verify(decode=bool(decode), steps=numbers, threads=self._threads, progress=progress)

    @staticmethod
    def repair(
        path: PathLike, *, dry_run: bool = False, threads: int = 0, progress: Progress | None = None
    ) -> RepairReport:
        """Makes complete checkpoints readable again, and keeps those as damaged of which a tensor can be read.

        Moves all others to the directory `damaged`. Works also on a store that cannot be opened.

        Args:
            path: the directory.
            dry_run: report what would be done, and change nothing.
            threads: 0 for all that the process may use.
            progress: called with (done bytes, total bytes); returning False cancels.

        Raises:
            NotFoundError: there is no store.
            BusyError: another handle writes to it.
        """
        with explained_holder("Store", path):
            return NativeStore.repair(
                native_home(path, "path"),
                dry_run=bool(dry_run),
                threads=number_of(threads, "threads", LARGEST_COUNT),
                progress=progress,
            )


# The name of a tensor, the offset of a box, and the tensor that it is read into.
BoxRequest: TypeAlias = tuple[str, Sequence[SupportsIndex], AnyTensor]
NativeBox: TypeAlias = tuple[str, str, tuple[int, ...], tuple[int, ...], int, tuple[int, ...]]


class StoreTensors:
    """Part of Store, which has the attributes."""

    _native: NativeStore
    _threads: int

    def tensors(self, step: SupportsIndex) -> dict[str, GlobalTensor]:
        """The tensors of all shards of a checkpoint, by name, in the order of the shards.

        Opens one small file if several processes saved the checkpoint. A tensor that was saved in boxes has its whole
        shape, and the boxes as its parts. A tensor that several shards hold whole is listed once if it is the same in
        all of them; otherwise each is listed as ``rank-N/NAME``.

        Raises:
            NotFoundError: there is no such checkpoint.
        """
        return self._native.tensors(number_of(step, "step"))

    def read_into(
        self, step: SupportsIndex, requests: Iterable[BoxRequest], *, progress: Progress | None = None
    ) -> None:
        """Reads boxes of tensors of a checkpoint, whatever shards hold them, into tensors of the caller.

        Opens only the shards that are needed, and decodes each of their chunks once, however many boxes it is in.
        Memory on the CPU is filled directly, with any strides. Needs little memory besides: a few chunks for each
        thread, and at most 256 MiB, or the largest tensor, for tensors of other devices.

        Example:
            rows = torch.empty(1024, 4096, dtype=torch.bfloat16)
            columns = torch.empty(4096, 64)
            store.read_into(100, [("model.w", (2048, 0), rows), ("model.v", (0, 128), columns)])

        Args:
            step: the checkpoint.
            requests: for each box the name of the tensor as tensors() lists it, the position of the first element, and
                a torch tensor or numpy array with the extent of the box and the dtype of the tensor. None of them may
                share memory with another one.
            progress: called with (done bytes, total bytes); returning False cancels.

        Raises:
            NotFoundError: there is no such checkpoint or tensor, or the shards do not hold all elements of a box.
            InvalidArgumentError: a box does not lie in its tensor, or a tensor has another dtype or cannot be filled.
                Nothing was written.
            CorruptError, TruncatedError: a file is damaged, or shards hold different values of the same elements. Some
                tensors may have been filled.
        """
        check_callable(progress, "progress")
        self._read_into(number_of(step, "step"), requests, progress=progress)

    def _read_into(
        self,
        number: int,
        requests: Iterable[BoxRequest],
        *,
        may_share: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """`may_share`: tensors may share memory, as tied weights do, if the same is read into it."""
        wanted = _checked(self._native.tensors(number), str(self._native.path), number, requests)
        if not may_share:
            check_apart([Filled(i, each.target, each.where) for i, each in enumerate(wanted)])
        total = sum(each.size_bytes for each in wanted)
        done = 0
        pinned = PinnedBatches()
        for batch in _batches(wanted):
            start = done
            report = None
            if progress is not None:
                report = partial(_report, progress, start, total)
            pinned.begin(each.size_bytes for each in batch if each.gpu is not None)
            staged = [each.staged(pinned) for each in batch]
            boxes = [each.native(memory) for each, (_, memory) in zip(batch, staged, strict=True)]
            self._native.read_boxes(number, boxes, threads=self._threads, progress=report)
            for each, (tensor, _) in zip(batch, staged, strict=True):
                if tensor is not None:
                    copy_into(each.target, tensor, each.where)
                note_filled(each.target.value)
            pinned.end()
            done += sum(each.size_bytes for each in batch)
        pinned.finish()


class _Wanted(NamedTuple):
    name: str
    dtype: str
    offset: tuple[int, ...]
    extent: tuple[int, ...]
    target: Target
    memory: Strided | None  # of the target; None: it is filled from a copy on the CPU
    size_bytes: int
    where: str

    @property
    def gpu(self) -> Any:
        """The GPU that the tensor is on, if it is on one."""
        return gpu_of(self.target.value)

    def staged(self, pinned: PinnedBatches) -> tuple[Any, Strided]:
        """The tensor on the CPU that is filled first, if there is one, and the memory to read into."""
        if self.memory is not None:
            return None, self.memory
        value = self.target.value
        tensor = pinned.empty(value.shape, value.dtype, self.gpu)
        item = tensor.element_size()
        return tensor, (tensor.data_ptr(), tuple(tensor.shape), tuple(step * item for step in tensor.stride()), item)

    def native(self, memory: Strided) -> NativeBox:
        address, _, strides, _ = memory
        return self.name, self.dtype, self.offset, self.extent, address, strides


def _report(progress: Progress, start: int, total: int, part: int, _: int) -> object:
    return progress(start + part, total)


def _checked(tensors: dict[str, GlobalTensor], path: str, step: int, requests: Iterable[BoxRequest]) -> list[_Wanted]:
    wanted = []
    for i, request in enumerate(requests):
        if not isinstance(request, tuple) or len(request) != 3:
            raise TypeError(f"requests[{i}] must be a tuple of name, offset and tensor, got {brief(request)}")
        name, offset, value = request
        where = f"the tensor of requests[{i}] ({name!r})"
        if not isinstance(name, str):
            raise TypeError(f"requests[{i}] must begin with the name of a tensor, got {brief(name)}")
        tensor = tensors.get(name)
        if tensor is None:
            raise NotFoundError(f"{path}: step {step}: there is no tensor {name!r}{alike(name, list(tensors))}")
        at = tuple(number_of(number, f"the offset of requests[{i}]") for number in offset)
        source = named_source_of(value, where)
        shape = source.shape
        if source.dtype != tensor.dtype:
            raise InvalidArgumentError(f"{where} is {source.dtype}, but the checkpoint holds {tensor.dtype}")
        target = fillable(value, source, where)
        fits = len(at) == len(shape) == len(tensor.shape) and all(
            start + extent <= size for start, extent, size in zip(at, shape, tensor.shape, strict=True)
        )
        if not fits:
            raise InvalidArgumentError(
                f"requests[{i}]: a box of shape {list(shape)} at offset {list(at)} does not lie in tensor {name!r} of "
                f"shape {list(tensor.shape)}"
            )
        if source.size_bytes > 0:
            wanted.append(
                _Wanted(name, source.dtype, at, shape, target, _memory_of(target, source), source.size_bytes, where)
            )
    return wanted


def _memory_of(target: Target, source: Source) -> Strided | None:
    """The memory on the CPU that can be filled directly; None: there is none."""
    if target.place is None:
        return target.strided
    item = source.size_bytes // math.prod(source.shape)
    strides = [item * math.prod(source.shape[axis + 1 :]) for axis in range(len(source.shape))]
    return target.place.address, source.shape, tuple(strides), item


def _batches(wanted: list[_Wanted]) -> list[list[_Wanted]]:
    """All tensors that are filled directly, and then batches of the others."""
    direct = [each for each in wanted if each.memory is not None]
    staged = [each for each in wanted if each.memory is None]
    return ([direct] if direct else []) + staged_batches(staged, lambda each: each.size_bytes)
