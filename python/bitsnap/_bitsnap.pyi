"""Bindings of libbitsnap; use the package bitsnap. Paths are bytes as os.fsencode gives them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

FORMAT_VERSION: int

def version() -> str: ...
def cpu_level() -> str: ...
def detected_cpu_level() -> str: ...
def force_cpu_level(level: str) -> bool: ...
def guess_role(name: str, dtype: str) -> str: ...
def note_fork() -> None: ...
def warn_of_leaks(warn: bool) -> None: ...
def peek_snapshot_id(path: bytes) -> str: ...
def is_safetensors(path: bytes) -> bool: ...
def is_store(path: bytes) -> bool: ...
def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as they are stored: checked, with loss rules in their normal form."""

def idle_rules(rules: Sequence[str], tensors: Sequence[tuple[str, str, str | None]]) -> list[str]:
    """Which of the rules fit none of the tensors: of name, dtype, and role, where it is not to be guessed."""

class TensorRef:
    """Stands in a tree of values where a tensor of the state belongs."""

    def __init__(self, index: int, kind: Literal["tensor", "array", "scalar"] | str) -> None: ...
    @property
    def index(self) -> int: ...
    @property
    def kind(self) -> str: ...

class TypedValue:
    """A value of a type that the tree itself does not have: its name, and what it is made of."""

    def __init__(self, type: str, content: Any) -> None: ...  # noqa: A002
    @property
    def type(self) -> str: ...
    @property
    def content(self) -> Any: ...

def value_text(value: Any) -> str:
    """The JSON of a value of the typed tree."""

class TensorInfo:
    """A tensor of a snapshot. Sizes are in bytes."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def item_bytes(self) -> int: ...
    @property
    def role(self) -> str: ...
    @property
    def alias_of(self) -> int | None: ...

class StreamSummary:
    """What the chunks of a tensor, or of the pool of small tensors, cost. Sizes are in bytes."""

    @property
    def tensor(self) -> int | None: ...
    @property
    def raw_bytes(self) -> int: ...
    @property
    def stored_bytes(self) -> int: ...
    @property
    def chunks(self) -> int: ...
    @property
    def chunks_with_base(self) -> int: ...
    @property
    def depth(self) -> int: ...
    @property
    def codecs(self) -> dict[str, int]: ...
    @property
    def reason(self) -> str: ...
    @property
    def quantizer(self) -> dict[str, Any] | None:
        """What it lost before it was stored."""

class Snapshot:
    @staticmethod
    def open(path: bytes, base_paths: Sequence[bytes]) -> Snapshot: ...
    @property
    def id(self) -> str: ...
    @property
    def path(self) -> bytes: ...
    @property
    def file_bytes(self) -> int: ...
    @property
    def writer(self) -> str: ...
    @property
    def policy(self) -> str: ...
    @property
    def objective(self) -> str: ...
    @property
    def metadata(self) -> dict[str, str]: ...
    @property
    def bases(self) -> list[tuple[str, str]]: ...
    @property
    def tensors(self) -> list[TensorInfo]: ...
    @property
    def has_tree(self) -> bool: ...
    def tree(self, decode: Callable[[str, Any], Any]) -> Any:
        """The tree of values, with decode(name, content) for each value of a type of its own."""

    def find(self, name: str) -> int | None: ...
    def read(
        self,
        requests: Sequence[tuple[int, int, int]],
        threads: int,
        progress: Callable[[int, int], object] | None,
    ) -> None:
        """Decodes whole tensors, (index, address, size in bytes) each, into memory of the caller."""

    def read_bytes(self, tensor: int, offset: int, address: int, size_bytes: int, threads: int) -> None: ...
    def streams(self) -> list[StreamSummary]: ...
    def verify(
        self, decode: bool, threads: int, progress: Callable[[int, int], object] | None
    ) -> list[tuple[str, str, str]]:
        """The damage: where, kind of error, message."""

class SaveSummary:
    """What was written. Sizes are in bytes."""

    def __repr__(self) -> str: ...
    @property
    def id(self) -> str:
        """32 hexadecimal digits over what the snapshot holds."""

    @property
    def raw_bytes(self) -> int:
        """Size of all tensors; tied ones count once."""

    @property
    def stored_bytes(self) -> int:
        """Size of the file."""

    @property
    def chunks(self) -> int: ...

class CheckpointInfo:
    """A checkpoint of a store, as its commit record has it. Sizes are in bytes."""

    @property
    def step(self) -> int: ...
    @property
    def time_unix_ms(self) -> int: ...
    @property
    def raw_bytes(self) -> int: ...
    @property
    def stored_bytes(self) -> int: ...
    @property
    def shards(self) -> int: ...
    @property
    def base(self) -> int | None: ...
    @property
    def links(self) -> int: ...
    @property
    def depth(self) -> int: ...
    @property
    def damage(self) -> tuple[str, str] | None:
        """Kind of error, message."""
    @property
    def prune_error(self) -> tuple[str, str] | None:
        """Kind of error, message."""

class Store:
    @staticmethod
    def open(
        path: bytes,
        *,
        access: Literal["read", "write", "shared"] | str,
        create: bool,
        settings: Mapping[str, Any],
        keep_last: int | None,
        keep_every: int | None,
        base_memory_bytes: int,
        wait_ms: int,
    ) -> Store: ...
    @staticmethod
    def repair(
        path: bytes, *, dry_run: bool, threads: int, progress: Callable[[int, int], object] | None
    ) -> tuple[
        int,
        list[tuple[int, bool, bytes, list[tuple[int, bytes, str, str, str]]]],
        list[tuple[int | None, str]],
        list[bytes],
    ]:
        """Whole checkpoints; dropped: step, whether it was pruned, place, damage; mended: step, what; strays."""

    def close(self) -> None: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def path(self) -> bytes: ...
    @property
    def run_id(self) -> str: ...
    @property
    def policy(self) -> str: ...
    @property
    def loss(self) -> list[str]: ...
    @property
    def objective(self) -> str: ...
    @property
    def is_durable(self) -> bool: ...
    def steps(self) -> list[int]: ...
    def checkpoints(self) -> list[CheckpointInfo]: ...
    def info(self, step: int) -> CheckpointInfo: ...
    def snapshot(self, step: int | None, shard: int) -> Snapshot: ...
    def save(
        self,
        step: int,
        tensors: Sequence[tuple[Any, ...]],
        tree: tuple[Any] | None,
        metadata: Sequence[tuple[str, str]],
        *,
        threads: int,
        progress: Callable[[int, int], object] | None,
    ) -> CheckpointInfo: ...
    def save_shard(
        self,
        step: int,
        tensors: Sequence[tuple[Any, ...]],
        tree: tuple[Any] | None,
        metadata: Sequence[tuple[str, str]],
        *,
        shard: int,
        shards: int,
        attempt: str,
        threads: int,
        progress: Callable[[int, int], object] | None,
    ) -> SaveSummary: ...
    def commit(self, step: int, shards: int, attempt: str) -> tuple[CheckpointInfo | None, list[int]]:
        """The checkpoint, or the shards that are missing."""

    def prune(
        self,
        *,
        keep_last: int | None,
        keep_every: int | None,
        keep: Sequence[int],
        reencode: str,
        dry_run: bool,
        threads: int,
        progress: Callable[[int, int], object] | None,
    ) -> tuple[
        list[int],
        list[tuple[int, int]],
        list[tuple[int, int, int]],
        list[tuple[int, int, int]],
        int,
        list[bytes],
    ]:
        """Kept; removed: step, size; needed: step, size, by; rewritten: step, before, after; bytes removed; strays."""

    def rollback(self, step: int) -> tuple[list[int], int]:
        """Removed, newest first; their size."""

    def verify(
        self,
        *,
        decode: bool,
        steps: Sequence[int],
        threads: int,
        progress: Callable[[int, int], object] | None,
    ) -> list[tuple[int, bytes, str, str, str]]:
        """The damage: step, file, where, kind of error, message."""

class Engine:
    """The trainer's side of an agent."""

    @staticmethod
    def attach(
        path: bytes,
        *,
        job: str,
        rank: int,
        world_size: int,
        session: str,
        settings: Mapping[str, Any],
        keep_last: int | None,
        keep_every: int | None,
        budget_bytes: int,
        slots: int,
        memory_snapshots: int,
        when_busy: str,
        wait_ms: int,
        linger_ms: int,
        threads: int,
        agent_threads: int,
        agent_program: bytes,
        agent_log: bytes,
    ) -> Engine: ...
    def close(self) -> None:
        """Waits for nothing; calls of other threads end soon."""

    @property
    def is_closed(self) -> bool: ...
    @property
    def path(self) -> bytes: ...
    @property
    def job(self) -> str: ...
    @property
    def agent_process(self) -> int: ...
    @property
    def arena_bytes(self) -> int: ...
    def save(
        self,
        step: int,
        tensors: Sequence[tuple[Any, ...]],
        tree: tuple[Any] | None,
        metadata: Sequence[tuple[str, str]],
        persist: bool,
    ) -> dict[str, Any]:
        """A save, by the names of its fields; its error is kind and message."""

    def reserve(
        self, tensors: Sequence[tuple[Any, ...]], tree: tuple[Any] | None, metadata: Sequence[tuple[str, str]]
    ) -> None: ...
    def look(self, ticket: int) -> dict[str, Any]: ...
    def wait(
        self, ticket: int, stage: Literal["staged", "memory", "persisted"] | str, timeout_ms: int
    ) -> dict[str, Any]: ...
    def wait_all(self, timeout_ms: int) -> None: ...
    def take_failures(self) -> list[dict[str, Any]]: ...
    def steps(self) -> list[tuple[int, bool, bool, bool, str]]:
        """Step, whether in memory, whether every rank's is, whether in the store; ascending."""

    def newest_common_step(self) -> int | None: ...
    def restore(self, step: int, attempt: str) -> tuple[Snapshot, bool, tuple[str, str] | None]:
        """The snapshot, whether it is from memory, and the kind and message of why it is not although it should be."""

def agent_report(job: str, timeout_ms: int) -> str: ...
def stop_agent(job: str, abandon: bool, timeout_ms: int) -> None: ...
def default_job(path: bytes) -> str: ...
def scatter(address: int, size_bytes: int, target: tuple[int, tuple[int, ...], tuple[int, ...], int]) -> None:
    """Copies packed bytes to strided memory: (address, shape, strides in bytes, bytes of an element)."""

def compare(
    a: Snapshot, b: Snapshot, threads: int, progress: Callable[[int, int], object] | None
) -> list[tuple[str, str, int, int, int]]: ...
def save(
    path: bytes,
    tensors: Sequence[tuple[Any, ...]],
    tree: tuple[Any] | None,
    metadata: Sequence[tuple[str, str]],
    *,
    settings: Mapping[str, Any],
    base: Snapshot | None,
    overwrite: bool,
    threads: int,
    progress: Callable[[int, int], object] | None,
) -> SaveSummary: ...
def compress(
    source: bytes,
    path: bytes,
    *,
    settings: Mapping[str, Any],
    adam: tuple[float, float, float, int] | None,
    base: Snapshot | None,
    overwrite: bool,
    threads: int,
    progress: Callable[[int, int], object] | None,
) -> SaveSummary: ...
def decompress(
    snapshot: Snapshot,
    path: bytes,
    *,
    overwrite: bool,
    threads: int,
    progress: Callable[[int, int], object] | None,
) -> int: ...
