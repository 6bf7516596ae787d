"""Copies of runs in other places: those that follow a run, and those that are uploaded to the Hugging Face hub.

A process copies what follows, `bitsnap mirror --watch`, and says how far it is.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex

from bitsnap._bitsnap import is_store
from bitsnap._common import (
    Home,
    PathLike,
    absolute_home,
    absolute_path,
    local_path,
    log,
    milliseconds_of,
    native_path,
    native_run,
    number_of,
    object_url,
    opened_store,
    warn,
)
from bitsnap.agents import find_program, run_program
from bitsnap.errors import (
    BackgroundSaveWarning,
    BitsnapError,
    BusyError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)

# Seconds without a change after which the process ends. The next save starts another one.
_IDLE = 900
_POLL = 0.1
# The longest wait for the process to follow a run that was brought back: a lease lasts for 75.
_LONGEST_WAIT = 100
_SECONDS_UNTIL_SAID = 2
# As long as this, the process may not have noted anything yet.
_SECONDS_TO_START = 10


class MirrorStatus(NamedTuple):
    """How far a copy of a run has come.

    Attributes:
        copy: its path or address.
        newest: its newest checkpoint; None if it has none, or if that is not known.
        waiting: the checkpoints of the run that are newer.
        error: why it does not follow now; None if it does.
    """

    copy: str
    newest: int | None
    waiting: tuple[int, ...]
    error: str | None


def mirror_status(path: PathLike) -> MirrorStatus | None:
    """What the process that copies a run has noted last; None if there was none. `path`: the directory of the run."""
    noted = _noted(absolute_path(path, "path"))
    if noted is None:
        return None
    return MirrorStatus(noted["copy"], noted["newest"], tuple(noted["waiting"]), noted["error"])


def wait_mirrored(path: PathLike, step: SupportsIndex, timeout: float = 600.0) -> None:
    """Waits until the copy of a run has a step, or a later one. `path`: the directory of the run.

    Raises:
        BusyError: it does not have it after `timeout` seconds; the message says why, if that is known.
    """
    run, wanted = absolute_path(path, "path"), number_of(step, "step")
    end = time.monotonic() + milliseconds_of(timeout, "timeout") / 1000
    while True:
        status = mirror_status(run)
        if status is not None and status.newest is not None and status.newest >= wanted:
            return
        if time.monotonic() > end:
            why = "no process copies it" if status is None else status.error or "it is being copied"
            raise BusyError(f"{run}: the copy does not have step {wanted} after {timeout:g} s: {why}")
        time.sleep(_POLL)


def _noted(run: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        noted = json.loads((run / "mirror.json").read_bytes())
        if isinstance(noted, dict) and noted.keys() >= {"process", "copy", "newest", "waiting", "error"}:
            return noted
    return None


def newest_of(place: Home) -> int | None:
    """The newest checkpoint of a run; None: there is no run, or it is empty."""
    try:
        return opened_store(place).latest()
    except NotFoundError:
        return None


class Mirroring:
    """The copy that follows the run of one training."""

    def __init__(self, run: Home, copy: PathLike, has_branch: bool) -> None:
        if not isinstance(run, Path) or has_branch:
            what = "a branch" if has_branch else f"{run}"
            raise InvalidArgumentError(f"mirror: follows the run of a directory, and not {what}")
        self._run, self._copy = run, str(absolute_home(copy, "mirror"))
        self._warned: str | None = None  # the error of the last warning
        self._is_brought_back = False
        self._started = -math.inf
        is_remote = object_url(copy) is not None
        if is_remote and not all(self._copy.partition("://")[2].partition("/")[2].split("/")):
            raise InvalidArgumentError(
                f"mirror: expected the address of a run, as s3://bucket/run with single slashes; found {self._copy}"
            )
        if not is_remote and not Path(self._copy).parent.is_dir():
            raise NotFoundError(f"mirror: {self._copy}: there is no directory {Path(self._copy).parent} to make it in")
        self._program = str(find_program(name="bitsnap-remote" if is_remote else "bitsnap"))
        atexit.register(self._warn_of_error)

    def bring_back(self) -> None:
        """Brings the newest checkpoint of the copy back if the run has none, as on another machine."""
        newest = self.missing()
        if newest is not None:
            self.bring(newest, self._run)

    def missing(self) -> int | None:
        """The newest checkpoint of the copy if the run has none; None if the run has one, or the copy has none, too."""
        return None if newest_of(self._run) is not None else newest_of(self._copy)

    def bring(self, step: int, target: Path) -> None:
        """Adds a checkpoint of the copy to the run `target`, which is made if it does not exist."""
        try:
            run_program(Path(self._program), "mirror", "--json", "--", f"{self._copy}@{step}", target)
        except BitsnapError as error:
            raise type(error)(f"mirror: {error}") from None
        log.info("%s: brought step %d back from %s", target, step, self._copy)

    def follow_again(self) -> None:
        """Starts the process for a run that was brought back."""
        self._is_brought_back, self._started = True, -math.inf
        self.follow()

    def settle(self) -> None:
        """Waits until the process follows a run that was brought back. A step that is removed before stays in the copy,
        because it is taken for one that the copy had from elsewhere."""
        begin = time.monotonic()
        is_said = False
        while self._is_brought_back and (waited := time.monotonic() - begin) < _LONGEST_WAIT:
            noted = _noted(self._run)
            if noted is not None and (noted["newest"] is not None or not self._is_alive(noted["process"])):
                break
            if waited > _SECONDS_UNTIL_SAID and not is_said:
                is_said = True
                log.warning(
                    "%s: this save waits, at most %d s, until %s follows; the lease of the machine before may hold it",
                    self._run,
                    _LONGEST_WAIT,
                    self._copy,
                )
            time.sleep(_POLL)
        self._is_brought_back = False

    def follow(self) -> None:
        """Starts the process unless it runs. It outlives this one."""
        noted = _noted(self._run)
        self._warn_of_error()
        if noted is not None and noted["copy"] == self._copy and self._is_alive(noted["process"]):
            return
        if noted is None and time.monotonic() < self._started + _SECONDS_TO_START:
            return
        self._started = time.monotonic()
        command = [self._program, "mirror", str(self._run), self._copy, "--watch", "--quiet", "--idle", str(_IDLE)]
        # setsid forks, so that this process has no child.
        try:
            subprocess.run(["setsid", "--fork", *command], check=True, stdin=subprocess.DEVNULL, **_NO_OUTPUT)
        except (OSError, subprocess.CalledProcessError) as error:
            warn(f"{self._copy} does not follow {self._run}: {error}", BackgroundSaveWarning, stacklevel=4)

    def _warn_of_error(self) -> None:
        """Also when the process ends, because the last save may be the only one."""
        noted = _noted(self._run)
        error = noted["error"] if noted is not None and noted["copy"] == self._copy else None
        if error is not None and error != self._warned:
            warn(f"{self._copy} does not follow {self._run} now: {error}", BackgroundSaveWarning, stacklevel=5)
        self._warned = error

    def _is_alive(self, process: object) -> bool:
        with suppress(OSError):
            return self._copy.encode() in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        return False


_known: dict[str, tuple[Path, Mirroring]] = {}  # by the copy: the run that it follows


def mirroring_of(run: Path, copy: str) -> Mirroring:
    """That of a run, for all who save to it in this process: its warnings are given once.

    Raises:
        InvalidArgumentError: the copy is that of another run of this process.
    """
    known, mirroring = _known.get(copy, (None, None))
    if mirroring is not None and known == run:
        return mirroring
    if known is not None and known.exists():
        raise InvalidArgumentError(
            f"mirror: {copy} is the copy of {known}, and cannot be that of {run}, too: each directory of checkpoints "
            "needs a copy of its own"
        )
    mirroring = Mirroring(run, copy, has_branch=False)
    _known[copy] = run, mirroring
    return mirroring


_NO_OUTPUT: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


# --- the Hugging Face hub, through huggingface_hub

_BUCKETS = "hf://buckets/"
# What a run has for this machine alone.
_LEFT_OUT = ["lock", "*.tmp", "mirror.json", "mirror-id.json"]


def push_to_hub(
    source: PathLike,
    repo_id: str,
    *,
    like: PathLike | None = None,
    dtype: str | None = None,
    private: bool | None = None,
    revision: str | None = None,
    message: str | None = None,
) -> str:
    """Uploads a model or a run to a repository or a bucket of the Hugging Face hub.

    Args:
        source: a checkpoint such as "run@1000", "run@latest" or "s3://bucket/run@1000", whose weights are uploaded as a
            folder that from_pretrained() of Transformers loads, as ``bitsnap convert --to hf`` writes it; or the path
            of a folder, such as one that this command wrote, or of a run, to which nobody may write meanwhile. They
            are uploaded as they are, and a run can be used where it was downloaded. Nothing is removed from the hub.
        repo_id: of a repository, such as "user/name", or of a bucket, such as "hf://buckets/user/name". It is made if
            it does not exist.
        like: of a checkpoint: a folder of the same model, as for ``bitsnap convert``.
        dtype: of a checkpoint: "bf16", "fp16" or "fp32"; None: as the weights are stored.
        private: whether a repository that is made is private. None: as the account has it.
        revision: the branch of the repository, which must exist.
        message: of the commit.

    Returns:
        the address of the commit, or of the bucket.

    Raises:
        NotFoundError: there is no such checkpoint or folder.
        InvalidArgumentError: an argument does not go with the others.
        UnsupportedError: huggingface_hub is not installed, or too old for buckets.
        And what huggingface_hub raises, such as HfHubHTTPError.
    """
    if not isinstance(repo_id, str):
        raise TypeError(f"repo_id must be a str such as 'user/name', got {type(repo_id).__name__}")
    folder_like = None if like is None else local_path(like)
    text = os.fsdecode(source if object_url(source) else local_path(source))
    hub = _hub_for(repo_id, revision, message)
    if object_url(source) is None and Path(text).is_dir():
        if like is not None or dtype is not None:
            raise InvalidArgumentError(f"{text}: is uploaded as it is; like and dtype are for a checkpoint: RUN@STEP")
        is_run = is_store(native_path(source))
        return _upload(hub, Path(text), repo_id, private, revision, message or f"Add {Path(text).name}", is_run)
    run, at, step = text.rpartition("@")
    if not at or not is_store(native_run(run)):
        raise NotFoundError(
            f"{text}: is neither a folder nor a checkpoint, such as run@1000; `bitsnap mirror` brings a run from a "
            "bucket to a disk"
        )
    with tempfile.TemporaryDirectory(prefix="bitsnap-hub-") as folder:
        model = Path(folder) / "model"
        more = [] if folder_like is None else ["--like", folder_like]
        more += [] if dtype is None else ["--dtype", dtype]
        program = find_program(name="bitsnap" if object_url(run) is None else "bitsnap-remote")
        run_program(program, "convert", text, model, "--to", "hf", *more)
        return _upload(hub, model, repo_id, private, revision, message or f"Add the model of step {step}", is_run=False)


def _hub_for(repo_id: str, revision: str | None, message: str | None) -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise UnsupportedError("push_to_hub() needs huggingface_hub: pip install huggingface_hub") from error
    if repo_id.startswith(_BUCKETS):
        if revision is not None or message is not None:
            raise InvalidArgumentError(f"{repo_id}: a bucket has neither revisions nor messages")
        if not hasattr(huggingface_hub.HfApi, "sync_bucket"):
            raise UnsupportedError(f"{repo_id}: huggingface_hub {huggingface_hub.__version__} is too old for buckets")
    return huggingface_hub.HfApi()


def _upload(
    hub: Any, folder: Path, repo_id: str, private: bool | None, revision: str | None, message: str, is_run: bool
) -> str:
    left_out = _LEFT_OUT if is_run else []
    if repo_id.startswith(_BUCKETS):
        hub.create_bucket(repo_id.removeprefix(_BUCKETS), private=private, exist_ok=True)
        hub.sync_bucket(str(folder), repo_id, exclude=left_out or None, quiet=True)
        return repo_id
    hub.create_repo(repo_id, private=private, exist_ok=True)
    done = hub.upload_folder(
        repo_id=repo_id,
        folder_path=folder,
        revision=revision,
        commit_message=message,
        ignore_patterns=left_out or None,
    )
    return str(done.commit_url)
