"""`python -m bitsnap.megatron` runs a Megatron-LM script, or converts its checkpoints."""

from bitsnap.megatron import main

main()
