"""How many operators of torch a call runs: each costs its share of a microsecond or more, however
small its tensors are."""

from torch.utils._python_dispatch import TorchDispatchMode

from layernorm.benchmarks.timing import Call


class _Counter(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.count += 1
        return operator(*args, **(kwargs or {}))


def count(call: Call) -> int:
    """Operators that reach a kernel, views included, backward passes within the call, too.

    An operator that a library registers counts as one, whatever happens inside.
    """
    with _Counter() as counter:
        call()
    return counter.count
