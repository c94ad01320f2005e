"""The bytes that an operation must move: each tensor that it reads or writes, counted once."""

from collections.abc import Iterable

from torch import Tensor

MODES = ("forward", "backward", "forward+backward")


def size(tensor: Tensor) -> int:
    """Bytes of a tensor's distinct elements (an expanded dimension holds one)."""
    count = 1
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= length if stride else min(length, 1)
    return count * tensor.element_size()


def traffic(
    mode: str,
    inputs: Iterable[Tensor],
    outputs: Iterable[Tensor],
    saved: Iterable[Tensor],
    gradients: Iterable[Tensor],
) -> int:
    """Return the least number of bytes read and written.

    Forward: every input once, every output once. For layer normalization of M rows of N
    elements of e bytes: 2 M N e and the parameters. Backward: the inputs it needs (`saved`), the
    gradient of every output, and every gradient it makes: 3 M N e and the parameters.
    Forward+backward is the sum: in a network other layers come between the two.
    """
    outputs = list(outputs)
    forward = sum(map(size, inputs)) + sum(map(size, outputs))
    backward = sum(map(size, saved)) + sum(map(size, outputs)) + sum(map(size, gradients))
    return {"forward": forward, "backward": backward, "forward+backward": forward + backward}[mode]
