"""What bitsnap's checkpoint engine does around save_checkpoint() and load_checkpoint() of a DeepSpeedEngine."""

from __future__ import annotations

from functools import partial, wraps
from typing import Any
from unittest.mock import patch

from deepspeed.runtime import engine as _engine


def wrap_calls(engine: Any, ours: type[Any]) -> None:
    """Wraps both, once. While another checkpoint engine than `ours` is used, they do what they did before."""
    if "_bitsnap_wraps" in vars(engine):
        return
    engine._bitsnap_wraps = True
    save, load = engine.save_checkpoint, engine.load_checkpoint

    @wraps(save)
    def save_checkpoint(*args: Any, **kwargs: Any) -> Any:
        result = save(*args, **kwargs)
        if isinstance(engine.checkpoint_engine, ours):
            engine.checkpoint_engine.stage()
        return result

    @wraps(load)
    def load_checkpoint(load_dir: Any, tag: Any = None, *args: Any, **kwargs: Any) -> Any:
        used = engine.checkpoint_engine
        if not isinstance(used, ours):
            return load(load_dir, tag, *args, **kwargs)
        # With ZeRO 3 and load_optimizer_states=False, the engine calls this without the tag.
        with patch.object(_engine, "get_fp32_state_dict_from_zero_checkpoint", partial(used.fp32_weights, tag)):
            return load(load_dir, tag, *args, **kwargs)

    engine.save_checkpoint, engine.load_checkpoint = save_checkpoint, load_checkpoint
