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
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from types import ModuleType
from typing import Any

from layernorm.lab.experiments import cluster_checkpoints

RETRIES = 3  # of a run whose worker died; a run that kills its worker each time is the cause
PATIENCE = 5.0  # seconds for a connection to be accepted
ANSWER = 300.0  # seconds for every node to start a worker


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
            self._keeper = cluster_checkpoints.keeper_here(self._ray)
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
    file = cluster_checkpoints.of_run(function, args)
    with cluster_checkpoints.sent(_ray(), keeper, file) if file else contextlib.nullcontext():
        return function(*args, **kwargs)


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
