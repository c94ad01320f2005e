"""The commands `layernorm run` and `layernorm experiments`."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import torch
import typer

from layernorm.lab.experiment_names import NAMES

if TYPE_CHECKING:
    from layernorm.lab.experiments import Config
    from layernorm.lab.experiments.data_parallel import Workers
    from layernorm.lab.records import Record

Name = Annotated[
    str, typer.Argument(help=f"`layernorm experiments` lists them: {', '.join(NAMES)}.")
]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="key=value; repeat it. A value is JSON or a word.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Threads = Annotated[int, typer.Option(help="Of each run; other numbers give other last bits.")]


def run(
    name: Name,
    profile: Annotated[str, typer.Option(help="book, standard or paper.")] = "book",
    arm: Annotated[
        str | None, typer.Option(help="What is compared. Default: layer, or the first with norms.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of every random number in the run.")] = 0,
    sets: Sets = None,
    device: Device = "auto",
    threads: Threads = 1,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget an earlier run of this.")] = False,
) -> None:
    """Train one arm of an experiment; stopped or killed, it goes on where it was.

    The learning rate is the one tuned for the arm and profile, if that was done.
    `layernorm experiments NAME` shows the profiles, arms and options of an experiment. Started by
    `torchrun --nproc-per-node=N -m layernorm run NAME`, N processes share every batch.
    """
    from layernorm.lab.experiments.data_parallel import started
    from layernorm.lab.experiments.machine import device_of

    use_threads(threads)
    device_of(device)
    config = configuration(name, profile, arm or usual_arm(name, profile), seed, sets or [])
    with started(device) as workers:
        if workers.rank == 0:
            _first(config, device, fresh, workers)
        elif not workers.told(None):  # it is not done
            _trained(config, device, workers)


def _first(config: Config, device: str, fresh: bool, workers: Workers) -> None:
    """Make the run, or find it done, and print its result."""
    from layernorm.lab import records
    from layernorm.lab.experiments import get, lock
    from layernorm.lab.experiments.checkpoint import say

    path = records.path(workers.document(get(config.experiment).document(config)))
    if lock.busy(lock.place(config)):
        say("waiting for another process that is at this run")
    with lock.held(lock.place(config)):
        if fresh:
            path.unlink(missing_ok=True)
            path.with_suffix(".checkpoint").unlink(missing_ok=True)
        if workers.told(path.exists()):
            record = records.read(path)
            say("this run is done; --fresh trains it again")
            if changed := records.stale(record):
                say(f"since then code that {changed} reaches changed")
        else:
            record = _trained(config, device, workers)
    for metric, value in sorted(record.result["final"].items()):
        typer.echo(f"{metric:<24} {value:.6g}")
    if record.result["diverged_at"] is not None:
        typer.echo(f"diverged at update {record.result['diverged_at']}: its loss was not finite")
    typer.echo(f"record: {path}")


def usual_arm(name: str, profile: str) -> str:
    """The arm that is run if none is named."""
    from layernorm.lab.experiments import get

    arms = get(name).profile(profile).arms
    with_norms = [arm for arm in arms if get(name).config(profile, arm, 0).options.method != "none"]
    return "layer" if "layer" in arms else (with_norms or list(arms))[0]


def assigned(sets: list[str]) -> dict[str, object]:
    """Options that `--set` names, none of which has an argument of its own."""
    from layernorm.lab.experiments import options

    values = options.assigned(sets)
    for name in ("profile", "arm", "seed", "seeds", "method"):
        if name in values:
            way = "choose another arm" if name == "method" else f"give it as --{name}"
            raise ValueError(f"--set takes options of the experiment, got {name}; {way}")
    return values


def configuration(name: str, profile: str, arm: str, seed: int, sets: list[str]) -> Config:
    """The run that the arguments name, at its tuned learning rate unless they set one."""
    from layernorm.lab.experiments import get
    from layernorm.lab.experiments.checkpoint import say
    from layernorm.lab.experiments.planning import Sweep, finished

    values = assigned(sets)
    config = get(name).config(profile, arm, seed, **values)
    if "learning_rate" in values:
        return config
    rate = None
    if arm in get(name).profile(profile).arms:
        rate = Sweep(name, profile, (arm,), (), values, by_heart=False).rate(finished(name), arm)
    if rate is None:
        say(f"{arm} is not tuned with these options: learning_rate is "
            f"{config.options.learning_rate:g}")  # fmt: skip
        return config
    return get(name).config(profile, arm, seed, **values, learning_rate=rate)


def _trained(config: Config, device: str, workers: Workers) -> Record:
    from tqdm import tqdm

    from layernorm.lab import records
    from layernorm.lab.experiments import checkpoint, get
    from layernorm.lab.experiments.run import train

    if workers.rank:
        return train(config, device=device, workers=workers)
    updates = config.options.updates
    with tqdm(total=updates, desc=f"{config.experiment} {config.arm}", disable=None) as bar:

        def progress(step: int, metrics: dict[str, float]) -> None:
            bar.update(step - bar.n)
            if metrics:
                shown = {name: f"{value:.4g}" for name, value in metrics.items()}
                bar.set_postfix(shown)
                if bar.disable:
                    line = "  ".join(f"{name} {value}" for name, value in shown.items())
                    print(f"update {step} of {updates}: {line}", file=sys.stderr)

        try:
            return train(config, device=device, progress=progress, workers=workers)
        except KeyboardInterrupt:
            bar.close()
            document = workers.document(get(config.experiment).document(config))
            file = records.path(document).with_suffix(".checkpoint")
            kept = "before its first checkpoint: the same command starts anew"
            if file.exists():
                step = checkpoint.read(file)["done"]["step"]
                kept = f"update {step} of {updates} is kept: the same command goes on from there"
            checkpoint.say(f"stopped; {kept}")
            raise


def experiments(
    name: Annotated[str | None, typer.Argument(help="Default: list all.")] = None,
) -> None:
    """List the experiments, or show the profiles, arms and options of one."""
    from layernorm.lab.experiments import NAMES, get
    from layernorm.lab.experiments.options import CommonOptions

    if name is None:
        width = max(map(len, NAMES))
        for each in NAMES:
            typer.echo(f"{each:<{width}}  {get(each).question}")
        return
    experiment = get(name)
    typer.echo(f"{experiment.question}\n\narms: {', '.join(experiment.arms)}\n")
    for title, profile in experiment.profiles.items():
        typer.echo(f"--profile {title}: seeds {', '.join(map(str, profile.seeds))}")
        typer.echo(f"  arms: {', '.join(profile.arms)}")
        typer.echo(f"  options: {_assignments(profile.options)}\n")
    defaults = {key: field.default for key, field in experiment.options.model_fields.items()}
    typer.echo(f"--set, with the defaults: {_assignments(defaults)}\n")
    for kind in experiment.options.__mro__:
        if issubclass(kind, CommonOptions):
            typer.echo(f"{inspect.getdoc(kind)}\n")


def _assignments(values: Mapping[str, object]) -> str:
    """Options as `--set` takes them."""
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in values.items()}
    return " ".join(f"{key}={text.replace(' ', '')}" for key, text in texts.items())


def use_threads(threads: int) -> None:
    """Let torch compute with that many threads; `ValueError` for too few or too many."""
    from layernorm.lab.experiments.machine import check_number

    check_number("threads", threads)
    torch.set_num_threads(threads)
