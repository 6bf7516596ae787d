"""What needs nothing else of this package: text, the places in a state, and Python's garbage collector."""
