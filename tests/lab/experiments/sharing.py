"""Runs that the workers of a crew make together; they import this by its name."""

from __future__ import annotations

import math

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


def write_lines(folder, count=20):
    """Lines of different lengths in the form of IAM-OnDB, a form for each of its lists."""
    lists = {"trainset": count, "testset_t": 1, "testset_v": 3, "testset_f": 3}
    for part, (name, lines) in enumerate(lists.items()):
        form = f"a01-00{part}u"
        for kind in ("ascii", "lineStrokes"):
            (folder / kind / "a01" / form[:7]).mkdir(parents=True)
        (folder / f"{name}.txt").write_text(form)
        texts = ["some text"[: 3 + i % 7] for i in range(lines)]
        text = "\n".join(["CSR:", *texts])
        (folder / "ascii" / "a01" / form[:7] / f"{form}.txt").write_text(text)
        for i in range(lines):
            places = ((3 * t, round(9 * math.sin(t + i * i))) for t in range(5 + 7 * i % 40))
            points = "".join(f'<Point x="{x}" y="{y}"/>' for x, y in places)
            xml = f"<W><StrokeSet><Stroke>{points}</Stroke></StrokeSet></W>"
            (folder / "lineStrokes" / "a01" / form[:7] / f"{form}-{i:02d}.xml").write_text(xml)


if __name__ == "__main__":  # the command, with a checkpoint after every update
    train.__kwdefaults__["checkpoint_seconds"] = 0
    main()
