"""Runs that the workers of a crew make together; they import this by its name."""

from __future__ import annotations

from layernorm.__main__ import main
from layernorm.lab.experiments import get
from layernorm.lab.experiments.data_parallel import Workers
from layernorm.lab.experiments.run import train


def config(arm, **options):
    few = {"updates": 12, "evaluations": 4, "batch_size": 8, "learning_rate": 1e-3}
    return get("batch_size").config("book", arm, 0, **{**few, **options})


def run(group, config, root, stop=None):
    """The run's record; every worker is interrupted at the update `stop`."""

    def progress(step, metrics):
        if step == stop:
            raise InterruptedError

    return train(
        config, device="cpu", root=root, checkpoint_seconds=0, progress=progress,
        workers=Workers(group.rank, group.size),
    )  # fmt: skip


if __name__ == "__main__":  # the command, with a checkpoint after every update
    train.__kwdefaults__["checkpoint_seconds"] = 0
    main()
