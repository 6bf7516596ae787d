"""What differs between the versions of Megatron-core, 0.16 to main: where the parts of dist_checkpointing are.

0.16 has classes for the common state. 0.17 and 0.18 have functions instead. From 0.19 on, the common state is a
ShardedObject, which the strategy saves with all others.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from bitsnap.errors import UnsupportedError

_PACKAGE = "megatron.core.dist_checkpointing"
# The unique key of the common state from 0.19 on.
COMMON_OBJECT = "common_state/shard_0_1"


@dataclass(frozen=True)
class Core:
    """The parts of the installed version."""

    save_strategy: type
    load_strategy: type
    sharded_tensor: Any
    sharded_object: Any
    nested_values: Callable[[Any], Any]
    map_values: Callable[..., Any]
    serialization: ModuleType
    common_classes: tuple[Any, Any] | None  # 0.16
    common_functions: tuple[ModuleType, ...]  # 0.17 and 0.18: the modules that have save_common() and load_common()
    common_loaders: tuple[ModuleType, ...]  # from 0.19 on: the modules that have load_common_state_dict()
    optimizer: type | None
    exchange: ModuleType | None  # has distribute_shards_to_ranks()

    def async_request(self, strategy: str) -> Any:
        """The class of asynchronous requests of "mcore" or "nvrx"."""
        find = getattr(_module("strategies.torch"), "get_async_strategy", None)
        if find is not None:
            return find(strategy)[1]["AsyncRequest"]
        return _module("strategies.async_utils").AsyncRequest


@functools.cache
def core() -> Core:
    """Of the installed version.

    Raises:
        ImportError: megatron-core is not installed.
        UnsupportedError: it is another version than those that are known.
    """
    package = importlib.import_module(_PACKAGE)
    torch_dist, common, mapping = (_module(name) for name in ("strategies.torch", "strategies.common", "mapping"))
    serialization, dict_utils = _module("serialization"), _module("dict_utils")
    classes = None
    functions: tuple[ModuleType, ...] = ()
    loaders: tuple[ModuleType, ...] = ()
    if hasattr(common, "TorchCommonSaveStrategy"):
        classes = (common.TorchCommonSaveStrategy, common.TorchCommonLoadStrategy)
    elif hasattr(serialization, "save_common"):
        functions = (common, serialization)
    else:
        loaders = (serialization, package)
    try:
        return Core(
            save_strategy=torch_dist.TorchDistSaveShardedStrategy,
            load_strategy=torch_dist.TorchDistLoadShardedStrategy,
            sharded_tensor=mapping.ShardedTensor,
            sharded_object=mapping.ShardedObject,
            nested_values=dict_utils.nested_values,
            map_values=dict_utils.dict_list_map_outplace,
            serialization=serialization,
            common_classes=classes,
            common_functions=functions,
            common_loaders=loaders,
            optimizer=_optimizer(),
            exchange=_exchange(),
        )
    except AttributeError as error:
        version = getattr(importlib.import_module("megatron.core"), "__version__", "unknown")
        raise UnsupportedError(
            f"megatron-core {version} has no strategies that bitsnap.megatron knows: {error}; versions from 0.16 on do"
        ) from None


def tensor_aware_state_dict() -> Any:
    """The class of the states that local checkpoints hold.

    Raises:
        ImportError: nvidia-resiliency-ext is not installed.
    """
    module = _module("tensor_aware_state_dict")
    if not getattr(module, "HAVE_NVRX", True):
        raise ImportError("local checkpoints of Megatron need nvidia-resiliency-ext")
    return module.MCoreTensorAwareStateDict


def local_managers() -> ModuleType | None:
    """The module from which Megatron takes the manager of local checkpoints; None if it cannot be imported."""
    try:
        return importlib.import_module("nvidia_resiliency_ext.checkpointing.local.ckpt_managers.local_manager")
    except Exception:  # whatever it lacks: Megatron says so if it wants local checkpoints
        return None


def _optimizer() -> type | None:
    try:
        found: type = importlib.import_module("megatron.core.optimizer.distrib_optimizer").DistributedOptimizer
    except ImportError:
        return None
    return found if hasattr(found, "sharded_param_state_dp_reshardable") else None


def _exchange() -> ModuleType | None:
    try:
        found = _module("exchange_utils")
    except ImportError:
        return None
    return found if hasattr(found, "distribute_shards_to_ranks") else None


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{_PACKAGE}.{name}")
