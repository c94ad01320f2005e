"""Jobs in a process of their own, without the tests' import hook: no graph capture sees through it.

A test file names its `jobs()`, asks `outcomes(__file__)` for what became of them, and ends with
`if __name__ == "__main__": report(jobs())`.
"""

import functools
import json
import subprocess
import sys
from collections.abc import Callable, Mapping


def python(*words, **options) -> subprocess.CompletedProcess[str]:
    """Python with these words, in a process of its own; what it prints is text."""
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, **options)


def started(*words, **options) -> subprocess.Popen[str]:
    """The same, not waited for."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *words], **pipes, **options)


def told(program, environment: Mapping[str, str] | None = None):
    """The JSON that a program prints."""
    done = python(program, timeout=1200, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@functools.cache
def outcomes(program: str) -> dict[str, str]:
    """One process for all jobs of a file: starting torch's tracer takes longer than a job."""
    return told(program)


def report(jobs: Mapping[str, Callable[[], None]]) -> None:
    """Print {job: "ok" or what went wrong}."""
    import torch  # here: not all that use this file have it

    found = {}
    for name, job in jobs.items():
        torch.manual_seed(0)  # the same draws, alone or after others
        try:
            job()
            found[name] = "ok"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"[:1000]
    json.dump(found, sys.stdout)
