"""Ray nodes of this machine, for tests, each in a session of its own that can be killed."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 300  # seconds, on a busy machine
WAITS = (
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S",
    "RAY_gcs_server_port_wait_time_s",
    "RAY_gcs_server_request_timeout_seconds",
)
TRIES = 5
LITTLE = ["--object-store-memory=80000000", "--disable-usage-stats"]
OWN_DISK = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"']


class Nodes:
    """A cluster whose head has one CPU; `add` starts another node.

    `env` is what its nodes and the commands that use them need.
    """

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.folder = folder
        self.started: list[subprocess.Popen] = []
        self.env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "OMP_NUM_THREADS": "1",
            "TOY_EXPERIMENT": "1",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(20),
        }
        head = ["--head", f"--port={self.port}", "--include-dashboard=false", "--num-cpus=1"]
        self._start([*head, f"--temp-dir={folder}/r"], {})

    def add(
        self, cpus: int = 1, gpus: int = 0, disk: tuple[Path, Path] | None = None, **env: str
    ) -> subprocess.Popen:
        """A node that says it has so many, whatever this machine has.

        `disk`: a folder, and another one in whose place the node finds it.
        """
        has = [f"--address={self.address}", f"--num-cpus={cpus}", f"--num-gpus={gpus}"]
        return self._start(has, env, [*OWN_DISK, *map(str, disk)] if disk else [])

    def _start(
        self, arguments: list[str], env: dict[str, str], within: list[str] | None = None
    ) -> subprocess.Popen:
        """Start a node, again if Ray gives up: it waits 30 seconds, however busy the machine."""
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
        command = [*(within or []), *ray, *arguments]
        for _ in range(TRIES):
            log = self.folder / f"node{len(self.started)}.log"
            with log.open("w") as file:
                node = subprocess.Popen(
                    [*command, *LITTLE],
                    env=self.env | env | dict.fromkeys(WAITS, str(PATIENCE)),
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
            self.started.append(node)
            until = time.monotonic() + PATIENCE
            while node.poll() is None and time.monotonic() < until:
                if "Ray runtime started" in log.read_text():
                    return node
                time.sleep(0.2)
            self.kill(node)
        raise RuntimeError(f"no node could be started: {log.read_text()}")

    def kill(self, node: subprocess.Popen) -> None:
        """End a node as a power cut does; its workers end when they miss it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(node.pid, signal.SIGKILL)
        node.wait()

    def close(self) -> None:
        for node in reversed(self.started):
            self.kill(node)
