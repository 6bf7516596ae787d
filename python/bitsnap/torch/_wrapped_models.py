"""Models inside the wrappers of torch: the names of their tensors, and what DistributedDataParallel keeps equal."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

# Modules that wrap others hold them by these names.
WRAPPERS = frozenset(("_orig_mod", "_checkpoint_wrapped_module"))


def without_wrappers(model: torch.nn.Module, name: str) -> str:
    """The name of a parameter or buffer in the model that was wrapped."""
    module: Any = model
    components = []
    for component in name.split("."):
        is_wrapped = component in WRAPPERS or (component == "module" and isinstance(module, DistributedDataParallel))
        if not is_wrapped:
            components.append(component)
        module = getattr(module, component, None)
    return ".".join(components)


def groups_of_replicas(model: torch.nn.Module) -> dict[int, Any]:
    """The groups of DistributedDataParallel, by the identities of the parameters that it keeps equal."""
    return {
        id(parameter): module.process_group
        for module in model.modules()
        if isinstance(module, DistributedDataParallel)
        for name, parameter in module.module.named_parameters()
        if name not in module.parameters_to_ignore
    }
