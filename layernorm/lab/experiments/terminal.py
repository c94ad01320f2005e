"""`layernorm run` and `layernorm sweep`: what they read from the terminal and show there."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tqdm import tqdm

from layernorm.lab import records
from layernorm.lab.experiments import get, options, timing
from layernorm.lab.experiments.experiment import Config
from layernorm.lab.experiments.planning import Sweep, finished
from layernorm.lab.experiments.run import device_of, train
from layernorm.lab.experiments.sweep import Outcome, carry_out


def configuration(name: str, profile: str, arm: str, seed: int, sets: list[str]) -> Config:
    """The run that the arguments name, at its tuned learning rate unless they set one."""
    values = options.assigned(sets)
    if "learning_rate" not in values:
        rate = None
        if arm in get(name).profile(profile).arms:
            rate = Sweep(name, profile, (arm,), (), values, by_heart=False).rate(
                finished(name), arm
            )
        if rate is None:
            rate = get(name).config(profile, arm, seed, **values).options.learning_rate
            _say(f"{arm} is not tuned with these options: learning_rate is {rate:g}")
        values["learning_rate"] = rate
    return get(name).config(profile, arm, seed, **values)


def run(config: Config, device: str, threads: int, fresh: bool) -> tuple[records.Record, Path]:
    """The run's record, trained now if it was not before, and where it lies."""
    use_threads(threads)
    device_of(device)
    path = records.path(get(config.experiment).document(config))
    checkpoint = path.with_suffix(".checkpoint")
    if fresh:
        path.unlink(missing_ok=True)
        checkpoint.unlink(missing_ok=True)
    elif path.exists():
        record = records.read(path)
        changed = records.stale(record)
        _say("this run is done; --fresh trains it again")
        if changed:
            _say(f"since then code that {changed} reaches changed")
        return record, path
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

        return train(config, device=device, progress=progress), path


def plan(name: str, profile: str, arms: str | None, seeds: str | None, sets: list[str]) -> Sweep:
    """The sweep that the arguments name."""
    try:
        numbers = tuple(int(seed) for seed in _words(seeds))
    except ValueError:
        raise ValueError(f"seeds must be integers with commas, got {seeds!r}") from None
    return Sweep(name, profile, _words(arms), numbers, options.assigned(sets))


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",")) if text else ()


def sweep(what: Sweep, device: str, processes: int | None, threads: int, time: bool) -> Outcome:
    """Carry it out with one bar over all runs; then time the arms, if wanted."""
    with tqdm(desc=f"{what.experiment} {what.profile}", unit="run", disable=None) as bar:

        def progress(done: int, known: int, name: str) -> None:
            bar.total = known
            bar.set_postfix_str(name, refresh=False)
            bar.update(done - bar.n)

        outcome = carry_out(
            what, workers=processes, threads=threads, device=device, progress=progress
        )
    old = [run for run in what.runs(outcome.done) if records.stale(run)]
    if old:
        _say(f"{len(old)} runs were made before the code they depend on changed; delete them to "
             "have them made anew")  # fmt: skip
    if time and not outcome.failed:
        timing.time_arms(what, outcome.done, threads=threads, device=device)
        outcome.done.update(finished(what.experiment))
    return outcome


def use_threads(threads: int) -> None:
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    torch.set_num_threads(threads)


def _say(sentence: str) -> None:
    print(f"layernorm: {sentence}", file=sys.stderr)
