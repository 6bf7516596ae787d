"""`python -m bitsnap.deepspeed` gets the state of a DeepSpeed checkpoint out of its run."""

from bitsnap.deepspeed import main

main()
