"""What bitsnap's checkpoint engine does around save_checkpoint() and load_checkpoint() of a DeepSpeedEngine."""

from __future__ import annotations

from functools import partial, wraps
from typing import Any
from unittest.mock import patch

from deepspeed.runtime import engine as _engine

from bitsnap._runs.framework_objects import Replacing


def wrap_calls(engine: Any, ours: Any, replaced: Replacing) -> None:
    """Wraps both. While another checkpoint engine than `ours` is used, they do what they did before."""
    save, load = engine.save_checkpoint, engine.load_checkpoint

    @wraps(save)
    def save_checkpoint(*args: Any, **kwargs: Any) -> Any:
        result = save(*args, **kwargs)
        if engine.checkpoint_engine is ours:
            ours.stage()
        return result

    @wraps(load)
    def load_checkpoint(load_dir: Any, tag: Any = None, *args: Any, **kwargs: Any) -> Any:
        if engine.checkpoint_engine is not ours:
            return load(load_dir, tag, *args, **kwargs)
        # With ZeRO 3 and load_optimizer_states=False, the engine calls this without the tag.
        with patch.object(_engine, "get_fp32_state_dict_from_zero_checkpoint", partial(ours.fp32_weights, tag)):
            return load(load_dir, tag, *args, **kwargs)

    replaced.replace(engine, "save_checkpoint", save_checkpoint)
    replaced.replace(engine, "load_checkpoint", load_checkpoint)
