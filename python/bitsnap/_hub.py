"""Uploads to the Hugging Face hub, through huggingface_hub."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from bitsnap._bitsnap import is_store
from bitsnap._common import PathLike, local_path, native_path, native_run, object_url
from bitsnap.agents import find_program, run_program
from bitsnap.errors import InvalidArgumentError, NotFoundError, UnsupportedError

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
