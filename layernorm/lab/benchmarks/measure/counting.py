"""Count the operators, arithmetic and bytes of a call.

Each operator costs its share of a microsecond or more, however small its tensors are.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from layernorm.lab.benchmarks.measure.byte_model import size
from layernorm.lab.benchmarks.measure.timing import Call


@dataclass
class Work:
    """Operators that reach a kernel, views included; arithmetic operations; bytes moved.

    A matrix product of n x k with k x m numbers is 2 n k m operations, any other operator one for
    each element of the largest tensor that it reads or writes. Bytes are those of all tensors it
    reads and writes, views apart: an operator of its own has nothing in its registers before.
    """

    operators: int = 0
    operations: int = 0
    bytes: int = 0


class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        from torch.utils.flop_counter import flop_registry  # takes a second to import

        super().__init__()
        self.work, self.products = Work(), flop_registry

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = operator(*args, **kwargs)
        self.work.operators += 1
        if not operator.is_view:
            tensors = [*_tensors((args, kwargs)), *_tensors(out)]
            self.work.bytes += sum(map(size, tensors))
            if counted := self.products.get(operator._overloadpacket):
                self.work.operations += counted(*args, **kwargs, out_val=out)
            else:
                self.work.operations += max((t.numel() for t in tensors), default=0)
        return out


def _tensors(tree: object) -> Iterable[Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


def work(call: Call) -> Work:
    """The work that a call asks for, its backward passes included.

    An operator that a library registers counts as one, whatever happens inside.
    """
    with _Counter() as counter:
        call()
    return counter.work


def count(call: Call) -> int:
    """Return the number of operators that a call runs."""
    return work(call).operators
