"""Runs that keep the checkpoints of a framework, which names, rotates and deletes them by their paths."""
