"""Every diagnostic on its null: where nothing is learned, no claim about it is supported.

A run's metric either scores what the run is for (a loss or an error on examples, or how soon it
falls) or is a diagnostic, whose margin or level names a null. Here the code that measures each one
measures its null, and the claim's own rule judges that, without gates, which nothing untrained
passes.
"""

import math
import re
from dataclasses import replace
from inspect import getclosurevars, unwrap

import pandas
import pytest
import torch

from layernorm.lab.claims import levels
from layernorm.lab.claims.experiments import ROWS, finding
from layernorm.lab.data.characters import ALPHABET
from layernorm.lab.experiments import get
from layernorm.lab.experiments.batches import generator
from layernorm.lab.experiments.compare import Verdicts
from layernorm.lab.experiments.convnet import untrained
from layernorm.lab.experiments.convnet.border import profile
from layernorm.lab.experiments.convnet.model import build
from layernorm.lab.experiments.convnet.plan import ConvNetOptions
from layernorm.lab.experiments.experiment import Config
from layernorm.lab.experiments.options import make
from layernorm.lab.experiments.studies.changes import noisy
from layernorm.lab.experiments.transformer.model import Transformer
from layernorm.lab.experiments.transformer.task import looked_at
from layernorm.modules import DynamicTanh
from tests.lab.claims.test_experiments import COLUMNS

SOONER = {"over_updates_seconds"}  # of a study's own; it reads a loss
SCORES = re.compile(
    "(best|mean|own)?_?(test|train|validation|shared|longer)?(_[0-9])?_?"
    "(nll|error|loss|bound|missed|tasks|image_r[0-9]+)"
)
TINY = {"updates": 80, "evaluations": 1}


def source(metric):
    """The name of what a comparison's metric reads, or else its own."""
    if isinstance(metric, str):
        return metric
    name = metric.__qualname__.partition(".")[0]
    within = getclosurevars(unwrap(metric)).nonlocals.get("metric", name)
    return source(within) if callable(within) else within


def test_every_metric_is_a_score_or_its_margin_names_a_null():
    of = {
        (source(metric), row.margin.null)
        for *_, rows in ROWS.values()
        for row in rows
        for *_, metric in row.contrast
    }
    of |= {(level.metric, level.null) for level in levels.LEVELS}
    of -= {(name, "") for name in SOONER}
    diagnostics = {name for name, null in of if null}
    assert [name for name, null in of if not null and not SCORES.fullmatch(name)] == []
    assert not any(map(SCORES.fullmatch, diagnostics))
    assert diagnostics == {
        *("drift_below", "saturated", "correlation", "mean_share", "late_angle", "early_angle"),
        *("change_directions", "noise_directions", "start_directions"),
        *("border_active", "border_variance"),
    }


def task(config: Config):
    experiment = get(config.experiment)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return experiment.task(config.options, config.seed, torch.device("cpu"))


def judged(id, ends):
    """The finding of a claim on these final metrics, by arm and seed."""
    experiment, plan, said, rows = ROWS[id]
    runs = [
        (arm, seed, math.nan, math.nan, metric, value, {"hidden": 48})
        for (arm, seed), found in ends.items()
        for metric, value in found.items()
    ]
    frame = pandas.DataFrame(runs, columns=COLUMNS)
    plan = replace(plan, gates=())
    arms = experiment.profile(plan.profile).arms
    seeds = sorted(set(frame.seed))
    return finding(said, rows, Verdicts(plan, frame, frame, arms, seeds)), rows


def arms_of(id):
    *_, rows = ROWS[id]
    return dict.fromkeys(arm for row in rows for arm in row.arms)


@pytest.mark.parametrize(
    "id", ["drift-reduced/digits", "inactive-region-avoided/digits", "removes-correlation/digits"]
)
def test_networks_before_training_do_not_differ_in_what_is_watched(id):
    ends = {}
    for arm in arms_of(id):
        for seed in range(8):
            of = task(get("drift").config("book", arm, seed))
            ends[arm, seed] = of.watch.curve(of.model.train())
    found, rows = judged(id, ends)
    assert found.verdict == "no difference here"
    assert len(found.numbers) == len(rows)


@pytest.fixture(scope="module")
def noise():
    """Runs of `changes` in which a random step of the first layer stands for learning, and moves
    its outputs about as far."""
    ends = {}
    for arm in get("changes").arms:
        for seed in range(6):
            of = task(get("changes").config("book", arm, seed))
            with torch.no_grad():
                first, x = of.model[:2], of.parts["validation"][0]
                draws = generator(seed, 1)
                far = 0.5 * float(first(x).norm())
                _, size = noisy(first, x, far, draws)
                draws = generator(seed, 1)
                for p, step in [(p, torch.randn(p.shape, generator=draws))
                                for p in first.parameters()]:  # fmt: skip
                    p += size * p.norm() * step / step.norm()
            ends[arm, seed] = of.final()
    return ends


@pytest.mark.parametrize("id", ["correlated-changes/digits", "relu-changes-more-correlated/digits"])
def test_changes_by_noise_are_not_more_correlated_than_changes_by_noise(id, noise):
    found, rows = judged(id, noise)
    verdicts = {shown["comparison"]: shown["verdict"] for shown in found.table}
    beside_noise = {verdicts[row.name] for row in rows if "untrained" not in row.name}
    assert not beside_noise & {"supported here", "opposite here"}
    assert found.verdict not in ("supported here", "opposite here", "depends")


def test_without_normalization_no_angle_falls_more_than_another():
    """Both arms of each comparison are networks without norms, at other seeds."""
    ends = {}
    for arm in arms_of(id := "angle-per-update-shrinks"):
        plain = arm.replace("layer", "none")
        for seed in range(4):
            config = get("angles").config("book", plain, seed + 4 * (arm != plain), **TINY)
            ends[arm, seed] = stepped(config)
    found, _ = judged(id, ends)
    assert not {shown["verdict"] for shown in found.table} & {"supported here", "opposite here"}


def stepped(config):
    """What a run of its updates ends with."""
    of = task(config)
    of.model.train()
    for step in range(1, config.options.updates + 1):
        of.loss(step)
    return of.final()


def transformer(arm, seed):
    """A transformer of the arm before training, and windows of random characters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        options = get("transformer").config("data" if "/" in arm else "standard", arm, seed).options
        return Transformer(options), torch.randint(len(ALPHABET), (8, 33))


def test_before_training_dynamic_tanh_saturates_alike_on_little_data_and_on_much():
    arms = arms_of(id := "little-data-saturates-dynamic-tanh/transformer")
    ends = {(arm, seed): looked_at(*transformer(arm, seed)) for arm in arms for seed in range(4)}
    assert judged(id, ends)[0].verdict == "no difference here"
    for arm in arms:  # the number answers: larger inputs lie where the curve is flat
        model, text = transformer(arm, 0)
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, DynamicTanh):
                    module.alpha *= 100
        assert looked_at(model, text)["saturated"] > ends[arm, 0]["saturated"] + 0.3


@pytest.mark.parametrize(("shift", "verdict"), [(0.0, "supported here"), (3.0, "opposite here")])
def test_the_mean_of_random_directions_is_what_is_subtracted(shift, verdict):
    """The claim says that there is no more mean than in its null; a shift of all units adds it."""
    ends = {}
    for seed in range(4):
        model, text = transformer("rms", seed)
        with torch.no_grad():
            spread = model.embed(text).std()
        embed = model.embed
        model.embed = lambda text, embed=embed, spread=spread: embed(text) + shift * spread
        ends["rms", seed] = looked_at(model, text)
    found, [row] = judged("the-mean-is-small/transformer", ends)
    assert found.verdict == verdict
    assert (abs(found.numbers[row.name]) < 0.01) == (shift == 0)


def of_level(level, value, gated=False, **others):
    """The finding of a level if all runs of each arm end with `value(arm's options)`, and so those
    of other metrics; what is subtracted is else 0."""
    experiment = level.experiment()
    profile = experiment.comparisons.profile
    ends = {level.less: lambda _: 0.0, **others, level.metric: value}
    ends.pop("", None)
    runs = [
        (arm, seed, math.nan, math.nan, metric, of(options) + 1e-6 * seed, options)
        for arm in level.arms
        for options in [experiment.config(profile, arm, 0).options.model_dump()]
        for metric, of in ends.items()
        for seed in range(5)
    ]
    frame = pandas.DataFrame(runs, columns=COLUMNS)
    plan = experiment.comparisons if gated else replace(experiment.comparisons, gates=())
    return level.finding(Verdicts(plan, frame, frame, level.arms, range(5)))


LEVELS = {level.id: level for level in levels.LEVELS}


@pytest.mark.parametrize(
    ("id", "edge"),
    [
        ("border-units-differ/convnet", 0),
        ("border-units-differ-by-learning/convnet", untrained.EDGE),
    ],
)
def test_borders_of_untrained_networks_do_not_differ_from_themselves(id, edge):
    found = of_level(LEVELS[id], lambda options: untrained.variance(options, edge))
    assert found.verdict == "opposite here"
    other = of_level(LEVELS[id], lambda options: untrained.variance(options, 4 - edge))
    assert other.verdict == "supported here"


def test_units_of_untrained_networks_are_as_active_at_the_border():
    level = LEVELS["border-units-rarely-active/convnet"]

    def active(options):
        found = []
        for start in range(5):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(start)
                model = build(make(ConvNetOptions, options), inputs=1)
                found.append(profile(model, torch.rand(50, 1, 28, 28))["border_active"])
        return sum(found) / len(found)

    found = of_level(level, active)
    assert found.verdict == "opposite here"
    assert all(0.9 < value < 1.1 for value in found.numbers.values())


@pytest.mark.parametrize("id", [id for id in LEVELS if "border" not in id])
def test_guessing_reaches_no_level(id):
    level = LEVELS[id]
    guessed = level.unit if "longer" in id else lambda options: 90.0
    assert of_level(level, guessed).verdict == "opposite here"


@pytest.mark.parametrize("id", [id for id, level in LEVELS.items() if level.less])
def test_guessing_at_every_length_is_refused_by_a_gate(id):
    """Its loss rises by nothing."""
    level = LEVELS[id]
    alike = {level.less: level.unit, "train_loss": lambda _: 0.0}
    found = of_level(level, level.unit, gated=True, **alike)
    assert found.verdict == "inconclusive"
    assert "is not surely better than guessing" in found.reason
