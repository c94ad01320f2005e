"""Give the published records the digest of today's code; run once, then deleted.

    python tools/convert_records.py BASE        # BASE: a checkout of ae598a8

A record that was fresh in BASE, by BASE's own rule, gets the digest of the code as it is here; one
that was stale there stays stale ("before" as its digest). A run that BASE does not have keeps what
it has. Configurations, results, timings and environments must come out as they went in: the counts
that are printed say that they did.
"""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

from layernorm.lab import records
from layernorm.lab.records.files import write
from layernorm.lab.records.published import _pack, published_folder
from layernorm.lab.records.record import SCHEMA, Record, decode, dumps

FRESH = """
import json
from layernorm import records
from layernorm.records.published import published
from layernorm.records.record import encode
for run in published():
    print(json.dumps([run.config, encode(run.result), run.timing, run.environment,
                      not records.stale(run)], sort_keys=True))
"""


def roots(run: Record) -> list:
    """What a run of this experiment starts from: as the code that makes its record says."""
    from layernorm.lab import experiments
    from layernorm.lab.benchmarks.measure.case import measure
    from layernorm.lab.benchmarks.norms.case import OPERATIONS, OperationCase
    from layernorm.lab.benchmarks.recurrent.case import RecurrentCase
    from layernorm.lab.benchmarks.training.case import TrainingCase
    from layernorm.lab.experiments import run as engine

    name = run.config["experiment"]
    if name in experiments.NAMES:
        experiment = experiments.get(name)
        return [*engine.ENGINE, experiment.task, *experiment.depends_on]
    of = {"bench_recurrent": [RecurrentCase], "bench_training": [TrainingCase]}
    of["bench_engine"] = of["bench_training"]
    return [*of.get(name, [OperationCase, OPERATIONS]), measure]


def rewritten(run: Record) -> bool:
    """Timings of code that was written anew, to the same bits: they are to be taken again."""
    name, arm = run.config["experiment"], run.config["arm"]
    return (name, arm) in {("bench_recurrent", "ours"), ("bench_training", "layer/fused")} or (
        name == "bench_engine"
    )


RENAMED = {"tuning": "book_tuning", "overfit": "book_overfit"}  # profiles of the studies


def content(config, result, timing, environment) -> str:
    """All of a record but its digest; the data set's hash stands in `config`."""
    profile = RENAMED.get(config["profile"], config["profile"])
    return dumps([{**config, "profile": profile}, result, timing, environment])


def unpacked(path: Path) -> list[Record]:
    """The runs of a published file of either schema."""
    document = json.loads(path.read_text())
    shared = document["shared"]
    found = []
    for run in document["runs"]:
        for curve in run["result"]["curves"].values():
            curve["step"] = shared[curve["step"]]
        final = run["result"]["final"]
        run["result"]["final"] = dict(zip(shared[final["metric"]], final["value"], strict=True))
        config = {"experiment": document["experiment"], "profile": document["profile"]}
        digest = shared[run["digest"]] if document["schema"] == SCHEMA else "before"
        parts = decode(run["result"]), run["timing"], shared[run["environment"]], digest
        found.append(Record({**config, **run["config"]}, *parts))
    return found


def main(base: Path) -> None:
    told = subprocess.run([sys.executable, "-c", FRESH], cwd=base, text=True, check=True,
                          env={"PYTHONPATH": str(base)}, stdout=subprocess.PIPE).stdout  # fmt: skip
    fresh = {}
    for line in told.splitlines():
        *parts, is_fresh = json.loads(line)
        fresh[content(*parts)] = is_fresh
    counts, sizes = Counter(), Counter()
    for path in sorted(published_folder().glob("*.json")):
        before, made = unpacked(path), []
        for run in before:
            config, result = dict(run.config), records.record.encode(run.result)
            known = fresh.get(content(config, result, run.timing, run.environment))
            kind = {None: "not in BASE", True: "fresh", False: "stale"}[known]
            digest = run.digest if known is None else "before"
            if known and not rewritten(run):
                digest = records.digest(roots(run), run.config, run.environment)
            counts[kind] += 1
            made.append(replace(run, digest=digest))
        sizes["before"] += path.stat().st_size
        write(path, _pack(made))
        sizes["after"] += path.stat().st_size
        same = [content(r.config, records.record.encode(r.result), r.timing, r.environment)
                for r in sorted(before, key=lambda r: r.key)]  # fmt: skip
        after = [content(r.config, records.record.encode(r.result), r.timing, r.environment)
                 for r in sorted(unpacked(path), key=lambda r: r.key)]  # fmt: skip
        assert same == after, path
        counts["runs, all values as before"] += len(made)
    print(dict(counts), dict(sizes), f"{len(fresh)} runs in BASE")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
