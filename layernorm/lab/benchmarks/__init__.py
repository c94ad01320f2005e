"""Benchmarks: implementations that agree with their definition are timed against each other.

`measure` is shared by `norms`, `recurrent` and `training`; `gpu` runs all that needs a GPU.
"""
