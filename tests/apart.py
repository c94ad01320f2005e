"""Other processes. Jobs in one of their own are without the tests' import hook: no graph capture
sees through it.

A test file names its `jobs()`, asks `outcomes(__file__)` for what became of them, and ends with
`if __name__ == "__main__": report(jobs())`.
"""

import functools
import json
import subprocess
import sys
from collections.abc import Callable, Mapping


def printed(*arguments, **options) -> str:
    """What Python prints with these arguments; it ends well."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@functools.cache
def outcomes(program: str) -> dict[str, str]:
    """One process for all jobs of a file: starting torch's tracer takes longer than a job."""
    return json.loads(printed(program, timeout=600))


def report(jobs: Mapping[str, Callable[[], None]]) -> None:
    """Print {job: "ok" or what went wrong}."""
    found = {}
    for name, job in jobs.items():
        try:
            job()
            found[name] = "ok"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"[:1000]
    json.dump(found, sys.stdout)
