"""Memory that the fast path for CPUs keeps.

A forward pass keeps what its gradient needs, in a layer of H units some 9 H numbers (the GRU: 6 H)
for each step of each sequence. When the gradient is done, the memory stays for the next training
step, since fresh memory takes longer than the arithmetic of small nets. Forward passes without
gradients keep nothing, and give nothing back: after the training, `clear()` does.
"""

from layernorm.recurrent.cpu import binding


def clear() -> None:
    """Give back all memory that is kept for later steps; what a gradient still needs is given back
    when that is done."""
    binding.pool.clear()
