"""The costs of things: only what is right is timed, and every result is written down at once.

`measure` has what all benchmarks share; norms, recurrent and training say what is measured; gpu
goes through all that needs a GPU.
"""
