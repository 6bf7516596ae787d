"""The paths of checkpoints as frameworks name them: a run and a step, as in ``run/step-100``."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from bitsnap._arguments.options import PathLike, local_path

# Words of frameworks before the number of a step; "100" alone is a step, too. A number behind any other word may be
# that of something else, as in the name of a temporary directory.
_STEP = re.compile(
    r"(?:(?:global_?step|step|iteration|iter|checkpoint|ckpt|epoch)[-_=]?)?(?P<step>[0-9]{1,20})", re.IGNORECASE
)


class CheckpointId(NamedTuple):
    """The directory of a store, and a step in it; None: the path names no step."""

    run: Path
    step: int | None


def checkpoint_id_of(path: PathLike) -> CheckpointId:
    """The run and the step that a path names. Raises UnsupportedError if it is a URL."""
    whole = Path(os.path.abspath(local_path(path)))  # noqa: PTH100  resolve() would follow links
    found = _STEP.fullmatch(whole.name)
    if found is None:
        return CheckpointId(whole, None)
    return CheckpointId(whole.parent, int(found["step"]))
