"""The runs of a sweep on the nodes of a Ray cluster, by an executor that `carry_out` takes. ::

    with RayExecutor("auto") as cluster:  # on a node of the cluster
        outcome = carry_out(Sweep("mnist", "standard"), workers=cluster)

Every node has the same package. A run whose worker or node dies is started again elsewhere, where
it goes on from its checkpoint. Nodes share the folder of runs, or send checkpoints now and then to
the one of the command.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

RETRIES = 3  # of a run whose worker died; a run that kills its worker each time is the cause
PATIENCE = 5.0  # seconds for a connection to be accepted
ANSWER = 300.0  # seconds for every node to start a worker
LOOK = 1.0  # seconds between two looks for a new checkpoint
APART = 60.0  # seconds between two that a run sends, at least; or 20 times as long as one takes
LARGEST = 64 * 2**20  # bytes of one that is sent
HASH = 32  # bytes that it begins with, others in each


class RayExecutor(Executor):
    """Calls as tasks of a Ray cluster, which must be importable there.

    Futures that are cancelled cancel their tasks. A task that fails raises its own error; one whose
    worker died with every try raises `RuntimeError`.

    Args:
        address: `auto`, the cluster of this machine, or `HOST:PORT`; this machine is one of its
            nodes. A connection that is there already is used, and left open.
        threads: the CPUs that a task takes.
        gpus: the GPUs that a task takes, or a fraction of one.

    Raises:
        ModuleNotFoundError: Ray is not installed.
        ConnectionError: no cluster answers, or it refuses the token.
        ValueError: an address or number that does not fit, no node with so many CPUs or GPUs, or
            nodes with other versions than here.
    """

    def __init__(self, address: str = "auto", *, threads: int = 1, gpus: float = 0) -> None:
        if threads < 1:
            raise ValueError(f"threads must be at least 1, got {threads}")
        if gpus < 0 or (gpus > 1 and gpus != int(gpus)):
            raise ValueError(f"gpus must be a fraction of 1 or a whole number, got {gpus:g}")
        self._ray = _ray()
        self._own = not self._ray.is_initialized()
        self._pending: set[Future] = set()
        self._closed, self._keeper = False, None
        if self._own:
            _connect(self._ray, address)
        try:
            nodes = [node for node in self._ray.nodes() if node["Alive"]]
            _check_room(nodes, CPU=threads, GPU=gpus)
            _check_versions(self._ray, nodes)
            self._keeper = _keeper_here(self._ray)
        except BaseException:
            self.shutdown()
            raise
        needs = {"num_cpus": threads, "num_gpus": gpus}
        self._task = self._ray.remote(**needs, max_retries=RETRIES)(_call)

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = _Task(self._ray, self._task.remote(function, args, kwargs, self._keeper))
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
        if cancel_futures:
            for future in list(self._pending):
                future.cancel()
        if wait:
            concurrent.futures.wait(list(self._pending))
        if self._own:
            self._ray.shutdown()
        elif self._keeper is not None:
            self._ray.kill(self._keeper)
            self._keeper = None


class _Task(Future):
    """The future of a task, which is cancelled with it."""

    def __init__(self, ray: ModuleType, ref: Any) -> None:
        super().__init__()
        self._ray, self._ref = ray, ref
        ref.future().add_done_callback(self._end)

    def cancel(self) -> bool:
        ref, cancelled = self._ref, super().cancel()
        if cancelled and ref is not None:
            self._ray.cancel(ref)
        return cancelled

    def _end(self, future: Future) -> None:
        """Take over the outcome; the cluster may then forget it."""
        self._ref = None
        if not self.set_running_or_notify_cancel():
            return
        error = future.exception()
        if error is None:
            self.set_result(future.result())
        else:
            self.set_exception(_own(self._ray, error))


def _call(function: Callable[..., Any], args: tuple, kwargs: Mapping[str, Any], keeper: Any) -> Any:
    file = _checkpoint(function, args)
    with _sent(keeper, file) if file is not None else contextlib.nullcontext():
        return function(*args, **kwargs)


def _checkpoint(function: Callable[..., Any], args: tuple) -> Path | None:
    """The file of a run's checkpoint, if the call is a run of a sweep."""
    from layernorm.lab.experiments import sweep

    if getattr(function, "func", None) is not sweep._work:
        return None
    (config,) = args
    if config.experiment not in sweep._fetched:
        sweep._fetch(config)
    return sweep._log(config, function.keywords["root"]).with_suffix(".checkpoint")


@contextlib.contextmanager
def _sent(keeper: Any, file: Path) -> Iterator[None]:
    """Begin with the keeper's checkpoint if there is none here, and send it new ones.

    A thread asks Ray: a task that waits for an answer itself gives its CPUs away meanwhile.
    """
    sender = _Sender(keeper, file)
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

    def __init__(self, keeper: Any, file: Path) -> None:
        self.keeper, self.file, self.here = keeper, str(file), _files()()
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
        return _ray().get(getattr(self.keeper, what).remote(self.file, *args), timeout=APART)

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        from layernorm.lab.experiments.checkpoint import say

        try:
            yield
        except (OSError, _ray().exceptions.RayError) as error:
            why = str(error).strip().rpartition("\n")[2]
            say(f"no checkpoint is exchanged with the command's machine: {why}")


def _files() -> type:
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


def _keeper_here(ray: ModuleType) -> Any:
    """An actor on this node, which keeps checkpoints in the folder of the command."""
    on = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    here = on(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(_files()).remote()


def _own(ray: ModuleType, error: BaseException) -> BaseException:
    """A task's own error, or why it had no end."""
    if isinstance(error, ray.exceptions.RayTaskError):
        return error.cause
    why = str(error).strip().partition("\n")[0]
    if isinstance(error, (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError)):
        why = f"its worker process or node died, {1 + RETRIES} times in a row"
    return RuntimeError(why)


def _ray() -> ModuleType:
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # a dead node is 25 lines otherwise
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a cluster needs the package ray, which is not installed here", name=error.name
        ) from error
    return ray


def _connect(ray: ModuleType, address: str) -> None:
    host, _, port = address.rpartition(":")
    if address != "auto" and not (host and port.isdigit() and "/" not in host):
        raise ValueError(f"cluster must be auto or HOST:PORT, got {address!r}")
    term = signal.getsignal(signal.SIGTERM)
    try:
        if host:  # Ray itself tries for minutes
            socket.create_connection((host, int(port)), PATIENCE).close()
        with _quiet():
            ray.init(address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise ConnectionError(
            f"no connection to the cluster {address!r}: {why}; start its nodes with `ray start`, "
            "and this command on one of them, all with the same Ray and the same token "
            "(RAY_AUTH_MODE and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH)"
        ) from error
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, term)  # Ray has set its own


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Drop what Ray's libraries print while they connect; errors say it in a line."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _check_room(nodes: list[dict[str, Any]], **needed: float) -> None:
    """Refuse tasks that would wait forever."""
    if any(all(n["Resources"].get(k, 0) >= v for k, v in needed.items()) for n in nodes):
        return
    has = "; ".join(
        sorted({", ".join(f"{n['Resources'].get(k, 0):g} {k}" for k in needed) for n in nodes})
    )
    wants = ", ".join(f"{v:g} {k}" for k, v in needed.items())
    raise ValueError(
        f"a run takes {wants}, and no node of the cluster has them ({has}); lower --threads or "
        "--gpus, or start nodes with more"
    )


def _check_versions(ray: ModuleType, nodes: list[dict[str, Any]]) -> None:
    """Refuse nodes whose runs would not be those of this machine."""

    def versions() -> dict[str, str]:
        """Nested, so that it is sent whole to nodes that lack the package."""
        import hashlib
        import importlib.metadata
        import importlib.util
        import platform
        from pathlib import Path

        found = {"Python": platform.python_version()}
        for name in ("torch", "layernorm"):
            spec = importlib.util.find_spec(name)
            found[name] = importlib.metadata.version(name) if spec else "none"
        if found["layernorm"] != "none":
            [folder] = importlib.util.find_spec("layernorm").submodule_search_locations
            code = hashlib.sha256()
            for file in sorted(Path(folder).rglob("*")):
                if file.suffix in (".py", ".h", ".cpp"):
                    code.update(file.read_bytes())
            found["layernorm"] += f" (code {code.hexdigest()[:8]})"
        return found

    here = versions()
    probe = ray.remote(num_cpus=0, max_retries=0)(versions)
    on = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    asked = {
        probe.options(scheduling_strategy=on(node["NodeID"], soft=False)).remote(): node
        for node in nodes
    }
    answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER)
    if silent:
        names = ", ".join(asked[ref]["NodeManagerAddress"] for ref in silent[:3])
        raise ConnectionError(f"{len(silent)} nodes of the cluster do not answer: {names}")
    for ref in answered:
        with contextlib.suppress(ray.exceptions.RayError):  # it died meanwhile
            there = ray.get(ref)
            for name in (name for name in here if there[name] != here[name]):
                raise ValueError(
                    f"node {asked[ref]['NodeManagerAddress']} of the cluster has {name} "
                    f"{there[name]}, this machine {here[name]}: install the same everywhere"
                )
