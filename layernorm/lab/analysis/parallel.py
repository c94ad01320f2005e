"""One update of a network whose batch is spread over workers, and what they tell each other."""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import os
import pickle
import socket
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from layernorm.modules import BatchNorm

PATIENCE = timedelta(minutes=1)  # for a worker that does not come to a collective operation


class Group:
    """The workers that share an update, as one of them sees them.

    `sent` holds the bytes that this worker handed to each collective operation so far; all workers
    wait for each other in every one. A worker that is alone tells nobody anything.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size, self.sent = rank, size, []

    def gather(self, x: Tensor) -> Tensor:
        """The tensors of all workers, (size, *x.shape)."""
        if self.size == 1:
            return x[None]
        self.sent.append(x.numel() * x.element_size())
        return self._gather(x)

    def sum(self, x: Tensor) -> Tensor:
        """The sum of the tensors of all workers."""
        if self.size == 1:
            return x
        self.sent.append(x.numel() * x.element_size())
        return self._sum(x)

    def _gather(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _sum(self, x: Tensor) -> Tensor:
        return self._gather(x).sum(0)


class Processes(Group):
    """Workers that are processes, by torch.distributed."""

    def __init__(self, rank: int, size: int, group: dist.ProcessGroup | None) -> None:
        super().__init__(rank, size)
        self.group = group

    def _gather(self, x: Tensor) -> Tensor:
        all_ = [torch.empty_like(x) for _ in range(self.size)]
        dist.all_gather(all_, x.contiguous(), group=self.group)
        return torch.stack(all_)

    def _sum(self, x: Tensor) -> Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=self.group)
        return total


class Threads(Group):
    """Workers that are threads of one process."""

    def __init__(self, rank: int, slots: list, barrier: threading.Barrier) -> None:
        super().__init__(rank, len(slots))
        self.slots, self.barrier = slots, barrier

    def _gather(self, x: Tensor) -> Tensor:
        self.slots[self.rank] = x.detach()
        self.barrier.wait()
        all_ = torch.stack(self.slots)
        self.barrier.wait()
        return all_


class Synchronized(torch.autograd.Function):
    """Batch normalization by the mean and variance of all workers' shards, of equal sizes.

    One collective operation forward and one backward, each of two numbers a unit.
    """

    @staticmethod
    def forward(ctx, a: Float[Tensor, "n h"], eps: float, group: Group) -> Float[Tensor, "n h"]:
        var, mean = torch.var_mean(a, 0, correction=0)
        means, variances = group.gather(torch.stack((mean, var))).unbind(1)
        sigma = (variances.mean(0) + means.var(0, correction=0) + eps).sqrt()
        y = (a - means.mean(0)) / sigma
        ctx.save_for_backward(y, sigma)
        ctx.group = group
        return y

    @staticmethod
    def backward(ctx, dy: Float[Tensor, "n h"]):
        y, sigma = ctx.saved_tensors
        told = torch.stack((dy.mean(0), (dy * y).mean(0)))
        mean, slope = (ctx.group.sum(told) / ctx.group.size).unbind()
        return (dy - mean - y * slope) / sigma, None, None


class SynchronizedBatchNorm(nn.Module):
    """A batch normalization in training, whose statistics are those of all workers' shards
    together; it keeps no running ones."""

    def __init__(self, norm: BatchNorm, group: Group) -> None:
        super().__init__()
        self.weight, self.bias, self.eps, self.group = norm.weight, norm.bias, norm.eps, group

    def forward(self, input: Tensor) -> Tensor:
        return Synchronized.apply(input, self.eps, self.group) * self.weight + self.bias


def synchronized(net: nn.Module, group: Group) -> nn.Module:
    """A copy of a network whose batch normalizations share their statistics."""
    net = copy.deepcopy(net)
    for module in list(net.modules()):
        for name, child in module.named_children():
            if isinstance(child, BatchNorm):
                setattr(module, name, SynchronizedBatchNorm(child, group))
    return net


@dataclass(frozen=True)
class Update:
    """The mean gradient of an update, all parameters in one vector, and the bytes that a worker
    handed to each collective operation: forward, backward, and for the gradient."""

    gradient: Float[Tensor, " parameters"]
    forward: tuple[int, ...]
    backward: tuple[int, ...]
    averaging: tuple[int, ...]


def update(
    group: Group,
    net: nn.Module,
    x: Float[Tensor, "n features"],
    y: Int[Tensor, " n"],
    shared: bool = False,
) -> Update:
    """The gradient of the mean cross-entropy of a batch, by workers that each have a shard of it.

    With `shared`, batch normalizations share their statistics; else each worker uses its own.
    Raises `ValueError` if the batch cannot be cut into equal shards.
    """
    if len(x) % group.size:
        raise ValueError(
            f"a batch of {len(x)} cannot be cut into {group.size} equal shards; choose a number of "
            "workers that divides it"
        )
    net = synchronized(net, group) if shared else copy.deepcopy(net)  # running statistics change
    parameters = list(net.parameters())
    begin = len(group.sent)
    loss = cross_entropy(net(x.chunk(group.size)[group.rank]), y.chunk(group.size)[group.rank])
    middle = len(group.sent)
    gradients = torch.autograd.grad(loss, parameters)
    end = len(group.sent)
    mean = group.sum(torch.cat([g.flatten() for g in gradients])) / group.size
    sent = tuple(group.sent)
    return Update(mean, sent[begin:middle], sent[middle:end], sent[end:])


def in_threads(workers: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Return the results of `function(group, *args)` in several workers, threads of a process."""
    slots, barrier = [None] * workers, threading.Barrier(workers)

    def work(rank: int) -> Any:
        try:
            return function(Threads(rank, slots, barrier), *args)
        except BaseException:
            barrier.abort()  # the others would wait for it
            raise

    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(work, rank) for rank in range(workers)]
    errors = [f.exception() for f in futures if f.exception() is not None]
    for error in sorted(errors, key=lambda e: isinstance(e, threading.BrokenBarrierError)):
        raise error
    return [future.result() for future in futures]


class Crew:
    """Worker processes of this machine that are started once and asked often; they speak by gloo
    over the loopback.

        with crew(4) as four:
            updates = four.ask(2, update, net, x, y)  # two of them
    """

    def __init__(self, pipes: list[Connection]) -> None:
        self.pipes = pipes

    def ask(self, workers: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run `function(group, *args)` in each of the first so many workers; return the results.

        Raises `ValueError` for a number that was not started, and what the function raises.
        """
        if not 1 <= workers <= len(self.pipes):
            raise ValueError(f"workers must be from 1 to {len(self.pipes)}, got {workers}")
        question = pickle.dumps((workers, function, args))
        for pipe in self.pipes[:workers]:
            pipe.send_bytes(question)
        answers = [pickle.loads(pipe.recv_bytes()) for pipe in self.pipes[:workers]]
        for error in (a for a in answers if isinstance(a, BaseException)):
            raise error
        return answers


@contextlib.contextmanager
def crew(size: int) -> Iterator[Crew]:
    """So many worker processes, until it ends."""
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:  # torch is then imported once, not by every worker
        context.set_forkserver_preload([__name__])
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        ends = [context.Pipe() for _ in range(size)]
        store = str(Path(folder) / "store")
        started = [
            context.Process(target=_serve, args=(rank, size, store, end), daemon=True)
            for rank, (_, end) in enumerate(ends)
        ]
        for process, (own, end) in zip(started, ends, strict=True):
            process.start()
            end.close()
            stack.callback(process.join)
            stack.callback(own.close)  # first: it ends the worker
        yield Crew([own for own, _ in ends])


def _serve(rank: int, size: int, store: str, pipe: Connection) -> None:
    """Answer questions until the other end of the pipe is closed."""
    torch.set_num_threads(1)
    for _, name in socket.if_nameindex():
        if name in ("lo", "lo0"):  # of Linux and of macOS
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
    place = {"store": dist.FileStore(store, size), "rank": rank, "world_size": size}
    dist.init_process_group("gloo", timeout=PATIENCE, **place)
    groups = {n: dist.new_group(range(n), timeout=PATIENCE) for n in range(2, size + 1)}
    with contextlib.suppress(EOFError, OSError):
        while True:
            workers, function, args = pickle.loads(pipe.recv_bytes())
            try:
                answer = function(Processes(rank, workers, groups.get(workers)), *args)
            except Exception as error:
                error.add_note("".join(traceback.format_exception(error)))
                answer = error
            pipe.send_bytes(pickle.dumps(answer))
    dist.destroy_process_group()
