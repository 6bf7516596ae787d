"""Tensors: of torch and numpy, on CPUs and GPUs, whole and in parts, as memory that the library reads and fills."""
