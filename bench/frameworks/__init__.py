"""Small trainings with the checkpointing of frameworks, for bench.framework_folders. Each module is one framework.

Each is a program of its own, so that the frameworks do not disturb each other and may start several processes.
"""
