"""The benchmark: `python -m bench` compares bitsnap with baselines on states of real trainings."""
