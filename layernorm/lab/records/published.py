"""Published records: the runs of one sweep in one compact file of the package.

One line per run, sorted, so that a new run is a new line for git; what runs share (options, hashes
of data, environments, digests, steps, names of final metrics) is written once under its own hash,
and how an arm was confirmed once under its name. Curves keep six significant digits, final metrics
all of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from layernorm.lab.records.environment import PRETENDED
from layernorm.lab.records.files import parse, read, write
from layernorm.lab.records.record import SCHEMA, Record, RecordError, decode, digest, dumps, encode

LIMIT = 1_000_000  # bytes of a published sweep: some five hundred runs
SHARED = ("options", "data")  # of a configuration


def published_folder() -> Traversable:
    """The package's folder of published records."""
    return resources.files("layernorm.lab.records") / "published"


def names(folder: Traversable | None = None) -> list[str]:
    """The published sweeps, each of them `<experiment>-<profile>`."""
    folder = published_folder() if folder is None else folder
    files = folder.iterdir() if folder.is_dir() else ()
    return sorted(file.name.removesuffix(".json") for file in files if file.name.endswith(".json"))


def published(
    experiment: str | None = None, profile: str | None = None, folder: Traversable | None = None
) -> list[Record]:
    """The published runs of an experiment and a profile, or of all.

    Raises:
        RecordError: a file is damaged or of another version.
    """
    folder = published_folder() if folder is None else folder
    found = []
    for sweep in names(folder):
        name, _, its_profile = sweep.partition("-")
        if experiment in (None, name) and profile in (None, its_profile):
            file = folder / f"{sweep}.json"
            found += _unpack(file.read_bytes(), file.name)
    return found


def publish(
    paths: Iterable[str | Path],
    *,
    folder: Path | None = None,
    replace: bool = False,
    used: Callable[[str, list[Record]], Container[str]] = lambda experiment, runs: (),
    same: Callable[[Record], str] = lambda run: run.key,
) -> list[Path]:
    """Adds runs to the package's published records; publishing again changes nothing.

    Args:
        paths: run files, or folders that hold some.
        folder: default: the package's own.
        replace: drop the sweeps' published runs that are neither among these nor used.
        used: gives the keys to keep, from an experiment's name and all its runs, old and new.
        same: gives what a run shares with those in whose place it is published; default: its key.

    Returns:
        The sweeps' files, `<experiment>-<profile>.json`.

    Raises:
        RecordError: no run is found, one is damaged or of a dry run, or a sweep exceeds `LIMIT`
            (nothing is written then; the message says which metric to thin).
    """
    target = published_folder() if folder is None else folder
    if not isinstance(target, Path):
        raise RecordError(f"the package's records {target} are not a folder one can write to")
    files = _run_files(paths)
    new = [read(file) for file in files]
    runs = zip(files, new, strict=True)
    if dry := [file for file, run in runs if PRETENDED in run.environment.get("gpus", ())]:
        more = f" and {len(dry) - 1} more" if len(dry) > 1 else ""
        raise RecordError(
            f"{dry[0]}{more}: of a dry run, on a GPU that is not there, where nothing was "
            "measured; remove the dry run's folder, or name only files of a run on a GPU"
        )
    sweeps: dict[tuple[str, str], dict[str, Record]] = {_sweep(run): {} for run in new}
    for experiment in dict.fromkeys(record.config["experiment"] for record in new):
        old = published(experiment, folder=target)
        mine = [run for run in new if run.config["experiment"] == experiment]
        kept = used(experiment, old + mine) if replace else {run.key for run in old}
        for run in [run for run in old if run.key in kept and _sweep(run) in sweeps] + mine:
            sweeps[_sweep(run)][same(run)] = run
    texts = {
        target / f"{experiment}-{profile}.json": _pack(list(runs.values()))
        for (experiment, profile), runs in sweeps.items()
    }
    for file, text in texts.items():
        if not file.exists() or file.read_text() != text:
            write(file, text)
    return list(texts)


def _sweep(run: Record) -> tuple[str, str]:
    return run.config["experiment"], run.config["profile"]


def note(records: list[Record], folder: Path | None = None) -> None:
    """Writes a published sweep anew, with what has been noted of its runs."""
    head = records[0].config
    folder = published_folder() if folder is None else folder
    write(folder / f"{head['experiment']}-{head['profile']}.json", _pack(records))


def values(content: bytes) -> Any:
    """The runs in a published file, apart from which code made them, or was confirmed to."""
    document = json.loads(content)
    shared = document.get("shared", {})
    for run in document.get("runs", []):
        run.pop("digest", None)
        run["environment"] = shared[run["environment"]]
        run["config"] = whole(run["config"], shared)
    return document.get("runs")


def whole(config: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """A published run's configuration, with what runs share in its place."""
    return {**config, **{name: shared[config[name]] for name in SHARED}}


def same_bits(one: Record, other: Record) -> bool:
    """Tell whether two results agree, bit for bit as far as published curves keep them."""
    return dumps(_compact(one.result)) == dumps(_compact(other.result))


def _compact(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result for strict JSON whose curves have six significant digits."""
    result = encode(result)
    for curve in result["curves"].values():
        curve["value"] = [_short(value) for value in curve["value"]]
    return result


def _run_files(paths: Iterable[str | Path]) -> list[Path]:
    files: list[Path] = []
    paths = list(paths)
    if "" in paths:
        raise RecordError("'' is no file and no folder: name run files or folders that hold some")
    for path in map(Path, paths):
        inside = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise RecordError(f"there is no run in {path}: expected files <key>.json")
        files += inside
    if not files:
        raise RecordError("nothing to publish: name run files or folders that hold some")
    return files


def _pack(records: list[Record]) -> str:
    records = sorted(records, key=lambda r: (r.config["arm"], r.config["seed"], r.key))
    shared: dict[str, Any] = {}
    confirmed: dict[str, dict[str, Any]] = {}

    def share(value: Any) -> str:
        name = digest(value)[:12]
        shared[name] = value
        return name

    lines = []
    for record in records:
        result = _compact(record.result)
        for curve in result["curves"].values():
            curve["step"] = share(curve["step"])
        final = result["final"]
        result["final"] = {"metric": share(list(final)), "value": list(final.values())}
        run = {
            "config": {**record.config, **{n: share(record.config[n]) for n in SHARED}},
            "result": result,
            "timing": record.timing,
            "environment": share(record.environment),
            "digest": share(record.digest),
        }
        del run["config"]["experiment"], run["config"]["profile"]
        lines.append(run)
        if record.confirmed:
            arm = confirmed.setdefault(record.config["arm"], {**record.confirmed, "of": []})
            arm["of"] = sorted({*arm["of"], run["digest"]})
    head = {name: records[0].config[name] for name in ("experiment", "profile")}
    noted = {"confirmed": confirmed} if confirmed else {}
    seal = digest({"schema": SCHEMA, **head, **noted, "shared": shared, "runs": lines})
    text = (
        f'{{"schema":{SCHEMA},"experiment":"{head["experiment"]}","profile":"{head["profile"]}",\n'
        + "".join(f'"{name}":{_lines(values)},\n' for name, values in noted.items())
        + f'"shared":{_lines(shared)},\n'
        + '"runs":[\n' + ",\n".join(map(dumps, lines)) + "\n],\n"
        + f'"sha256":"{seal}"}}\n'
    )  # fmt: skip
    if len(text) > LIMIT:
        _refuse_size(len(text), head, lines)
    return text


def _lines(values: Mapping[str, Any]) -> str:
    """An object with a line for each entry."""
    pieces = [f"{dumps(name)}:{dumps(value)}" for name, value in sorted(values.items())]
    return "{\n" + ",\n".join(pieces) + "\n}"


def _short(value: float | str) -> float | str:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _refuse_size(size: int, head: Mapping[str, str], runs: list[dict[str, Any]]) -> None:
    taken: Counter[str] = Counter()
    points: Counter[str] = Counter()
    for run in runs:
        for metric, curve in run["result"]["curves"].items():
            taken[metric] += len(dumps(curve["value"]))
            points[metric] = max(points[metric], len(curve["value"]))
    ((metric, most),) = taken.most_common(1) or [("", 0)]
    advice = (
        f"record {metric!r} less often ({len(runs)} runs of up to {points[metric]} points take "
        f"{most / 1000:.0f} kB of it)"
        if metric
        else f"publish fewer of its {len(runs)} runs"
    )
    raise RecordError(
        f"sweep {head['experiment']}-{head['profile']} would take {size / 1000:.0f} kB, the limit "
        f"is {LIMIT / 1000:.0f} kB: {advice}"
    )


@lru_cache(maxsize=64)  # the claims of a chapter read the same few sweeps again and again
def _unpack(content: bytes, name: str) -> tuple[Record, ...]:

    def build(document: dict[str, Any]) -> tuple[Record, ...]:
        shared = document["shared"]
        head = {part: document[part] for part in ("experiment", "profile")}
        confirmed = document.get("confirmed", {})
        records = []
        for run in document["runs"]:
            for curve in run["result"]["curves"].values():
                curve["step"] = shared[curve["step"]]
            final = run["result"]["final"]
            named = zip(shared[final["metric"]], final["value"], strict=True)
            run["result"]["final"] = dict(named)
            noted = {"of": (), **confirmed.get(run["config"]["arm"], {})}
            applies = run["digest"] in noted.pop("of")
            records.append(
                Record(
                    {**head, **whole(run["config"], shared)},
                    decode(run["result"]),
                    run["timing"],
                    shared[run["environment"]],
                    shared[run["digest"]],
                    noted if applies else {},
                )
            )
        return tuple(records)

    return parse(content, f"published record {name}", "publish the sweep again", build)
