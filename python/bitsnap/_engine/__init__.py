"""The side of the training of a Checkpointer: its saves, what ranks agree on, and restoring."""
