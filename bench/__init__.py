"""The benchmark: `python -m bench` measures bitsnap and its peers on states of real trainings."""
