"""States: nested values, taken apart into named tensors and a tree of other values, and put together again."""
