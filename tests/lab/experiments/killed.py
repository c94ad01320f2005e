"""Runs in another process that die where a test says; apart from the tests, whose module another
process finds under no name if an installed package is called `tests`, too."""

import os
import signal

from lab.experiments import toy_experiment

from layernorm.lab.experiments.run import train


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def train_and_die(config, root, step, write):
    """Die when update `step` is told, or within that write."""
    written = 0

    def fsync(number):
        nonlocal written
        written += 1
        if written == write:
            die()

    if write is not None:
        os.fsync = fsync
    train(config, root=root, checkpoint_seconds=0, progress=lambda now, _: now == step and die())


def train_and_tell(config, root):
    told = []
    result = train(config, root=root, progress=lambda step, _: told.append(step)).result
    return result, told


def serve(connection):
    """Answer calls with their exit code and what they return, each from a fork of its own."""

    toy_experiment.register()
    while True:
        function, *arguments = connection.recv()
        if not (child := os.fork()):
            connection.send(function(*arguments))
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.send(code)
