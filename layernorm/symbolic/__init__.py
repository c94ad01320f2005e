"""Normalization in SymPy: definitions, and what follows from them for every size of a layer.

`definitions` writes each method down once, as two statistics; sizes are ints or symbols.
`invariances` decides Table 1 of the paper: a proof or a counterexample for every cell.
`gradients` derives every backward pass from its definition; `code` prints it as the code that runs;
`recurrent` does so for the steps of recurrent networks.
`geometry` is the Fisher information of standard and normalized models.
`sums` is the one rule of algebra that makes an argument hold for every size.

Needs SymPy, which `import layernorm` does not.
"""

from layernorm.symbolic.code import function, source
from layernorm.symbolic.definitions import METHODS, Sizes
from layernorm.symbolic.gradients import derive
from layernorm.symbolic.invariances import TRANSFORMATIONS, decide, table1

__all__ = [
    "METHODS",
    "TRANSFORMATIONS",
    "Sizes",
    "decide",
    "derive",
    "function",
    "source",
    "table1",
]
