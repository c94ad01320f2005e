"""Benchmarks: implementations that agree with their definition are timed against each other.

`measure` is shared by all of them: `norms`, `recurrent`, `packed`, `compiling`, `training` and
`workers`. What needs a GPU is run by `layernorm.lab.gpu`.
"""
