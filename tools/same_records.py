"""Are two sets of published records the same numbers? `python tools/same_records.py v0.1 HEAD`

Each is a revision of git or a folder. Runs of one configuration are compared value for value, their
results and their times; which code made a run, and where, is no value. A metric that a run has by
now and had not before makes no difference, one that it lost does. Sweeps that have other names by
now are given as pairs: `adding-overfit=adding-book_overfit`.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from layernorm.lab.records import key
from layernorm.lab.records.published import whole

Runs = dict[str, dict[str, dict[str, Any]]]  # by sweep and key: values by name
CHANGED = ("other results", "other times alone")
KINDS = ("the same", "the same and more", *CHANGED, "only before", "only now")
MOST = 10  # changed runs of a sweep that are named


def files(source: str) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each published sweep of a revision or in a folder."""
    if Path(source).is_dir():
        yield from ((path.name, path.read_bytes()) for path in Path(source).glob("*.json"))
        return
    listed = _git("ls-tree", "-r", "--full-tree", "--name-only", source).decode().splitlines()
    for path in map(PurePath, listed):
        if path.suffix == ".json" and path.parts[-3:-1] == ("records", "published"):
            yield path.name, _git("show", f"{source}:{path}")


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], check=True, stdout=subprocess.PIPE).stdout


def published(source: str, names: Mapping[str, str] | None = None) -> Runs:
    """Return the runs of a revision or a folder, as any version of the format has them.

    Args:
        names: of sweeps, by those that they had there.
    """
    found: Runs = {}
    for file, content in files(source):
        sweep = (names or {}).get(name := file.removesuffix(".json"), name)
        experiment, _, profile = sweep.partition("-")
        document = json.loads(content)
        for run in document["runs"]:
            head = {"experiment": experiment, "profile": profile}
            config, shared = run["config"], document["shared"]
            if isinstance(config["options"], str):  # in earlier versions they stand there
                config = whole(config, shared)
            found.setdefault(sweep, {})[key({**config, **head})] = _values(run, shared)
    return found


def _values(run: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's curves, final metrics and times, with what runs share put in its place."""
    result, final = run["result"], run["result"]["final"]
    curves = {
        f"curve {metric}": dict(zip(shared[curve["step"]], curve["value"], strict=True))
        for metric, curve in result["curves"].items()
    }
    final = zip(shared[final["metric"]], final["value"], strict=True)
    times = {f"time {name}": seconds for name, seconds in run["timing"].items()}
    return {**curves, **dict(final), **times, "diverged at": result["diverged_at"]}


def compared(before: Runs, now: Runs) -> dict[str, dict[str, list[str]]]:
    """Return for each sweep the keys of its runs by kind."""
    found = {}
    for sweep in sorted({*before, *now}):
        old, new = before.get(sweep, {}), now.get(sweep, {})
        kinds = found[sweep] = {kind: [] for kind in KINDS}
        for name in dict.fromkeys([*old, *new]):
            kinds[_kind(old.get(name), new.get(name))].append(name)
    return found


def _kind(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> str:
    if old is None or new is None:
        return "only now" if old is None else "only before"
    other = [name for name, value in old.items() if name not in new or new[name] != value]
    if other:
        timed = all(name.startswith("time ") for name in other)
        return "other times alone" if timed else "other results"
    return "the same and more" if len(new) > len(old) else "the same"


def _said(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)


def main(before: str, now: str, *renamed: str) -> None:
    names = dict(pair.split("=") for pair in renamed)
    found = compared(published(before, names), published(now))
    if not found:
        sys.exit(f"neither {before} nor {now} has published records")
    total: Counter[str] = Counter()
    for sweep, kinds in found.items():
        counts = {kind: len(keys) for kind, keys in kinds.items()}
        total.update(counts)
        print(f"{sweep}: {_said(counts)}")
        for kind in CHANGED:
            print(*(f"    {kind}: {name}\n" for name in kinds[kind][:MOST]), sep="", end="")
    print(f"{len(found)} sweeps: {_said(total)}")
    sys.exit(any(total[kind] for kind in CHANGED))


if __name__ == "__main__":
    main(*sys.argv[1:])
