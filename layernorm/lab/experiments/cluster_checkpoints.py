"""Checkpoints of a cluster's runs, kept on the machine of the command where nodes have own disks:
a run that starts again on another node goes on from there."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

LOOK = 1.0  # seconds between two looks for a new checkpoint
APART = 60.0  # seconds between two that a run sends, at least; or 20 times as long as one takes
LARGEST = 64 * 2**20  # bytes of one that is sent
HASH = 32  # bytes that it begins with, others in each


def of_run(function: Callable[..., Any], args: tuple) -> Path | None:
    """The file of a run's checkpoint, if the call is a run of a sweep."""
    from layernorm.lab.experiments import sweep

    if getattr(function, "func", None) is not sweep._work:
        return None
    (config,) = args
    if config.experiment not in sweep._fetched:
        sweep._fetch(config)
    return sweep._log(config, function.keywords["root"]).with_suffix(".checkpoint")


@contextlib.contextmanager
def sent(ray: Any, keeper: Any, file: Path) -> Iterator[None]:
    """Begin with the keeper's checkpoint if there is none here, and send it new ones.

    A thread asks Ray: a task that waits for an answer itself gives its CPUs away meanwhile.
    """
    sender = _Sender(ray, keeper, file)
    with ThreadPoolExecutor(1) as thread:
        try:
            thread.submit(sender.fetch).result()
            thread.submit(sender.send)
            yield
        finally:
            sender.ended.set()
        thread.submit(sender.forget).result()


class _Sender:
    """Exchanges a run's checkpoints with the keeper. Without an answer the run goes on alone."""

    def __init__(self, ray: Any, keeper: Any, file: Path) -> None:
        self.ray, self.keeper = ray, keeper
        self.file, self.here = str(file), files()()
        self.ended, self.there = threading.Event(), False
        self.last = b""  # the hash of the one that was sent

    def fetch(self) -> None:
        with self._telling():
            self.last, own = self._ask("begins"), self.here.begins(self.file)
            self.there = self.last not in (b"", own)  # on another disk
            if self.there and not own:
                self.here.write(self.file, self._ask("read"))

    def send(self) -> None:
        wait = LOOK
        while not self.ended.wait(wait):
            wait, began = LOOK, time.monotonic()
            if self.here.begins(self.file) not in (b"", self.last):
                with self._telling():
                    self._send()
                    wait = max(APART, 20 * (time.monotonic() - began)) if self.there else LOOK

    def _send(self) -> None:
        content = self.here.read(self.file, LARGEST + 1)
        self.last = content[:HASH]
        if self._ask("begins") == self.last:
            return  # on the same disk
        if len(content) > LARGEST:
            raise OSError(f"it has more than {LARGEST >> 20} MiB")
        self.there = True
        self._ask("write", content)

    def forget(self) -> None:
        with self._telling():
            if self.there:
                self._ask("forget")

    def _ask(self, what: str, *args: Any) -> Any:
        return self.ray.get(getattr(self.keeper, what).remote(self.file, *args), timeout=APART)

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        from layernorm.lab.experiments.checkpoint import say

        try:
            yield
        except (OSError, self.ray.exceptions.RayError) as error:
            why = str(error).strip().rpartition("\n")[2]
            say(f"no checkpoint is exchanged with the command's machine: {why}")


def files() -> type:
    """Nested, so that it is sent whole, to a process that starts without the package."""

    class Files:
        """Files of a machine, there whole or not at all."""

        def begins(self, file: str) -> bytes:
            return self.read(file, HASH)

        def read(self, file: str, size: int = -1) -> bytes:
            """Its content up to a size; nothing if there is no such file."""
            try:
                with open(file, "rb") as opened:
                    return opened.read(size)
            except FileNotFoundError:
                return b""

        def write(self, file: str, content: bytes) -> None:
            path = Path(file)
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
            try:
                temporary.write_bytes(content)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)

        def forget(self, file: str) -> None:
            Path(file).unlink(missing_ok=True)

    return Files


def keeper_here(ray: ModuleType) -> Any:
    """An actor on this node, which keeps checkpoints in the folder of the command."""
    on = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    here = on(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(files()).remote()
