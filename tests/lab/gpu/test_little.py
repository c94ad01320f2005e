"""Experiments on a machine without pydantic: the same plans, keys and refusals."""

import json

import pytest
from lab.benchmarks.benching import python

from layernorm.lab.gpu import little

# Not on the machines that were had so far: pydantic, and what only tests and pages need.
MISSING = [
    *("pydantic", "pydantic_core", "annotated_types", "beartype", "pooch", "jupytext", "nbformat"),
    *("IPython", "yaml", "tqdm"),
]
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({MISSING})); "
CONFIGS = (
    "import json; from layernorm.lab.experiments import NAMES, get; "
    "made = [get(name).config(profile, arm, 3) for name in NAMES "
    "for profile, plan in get(name).profiles.items() for arm in plan.arms]; "
    "print(json.dumps([[one.key(), one.plain()] for one in made]))"
)


def test_every_run_of_every_profile_has_the_same_key_and_options():
    without = WITHOUT + "from layernorm.lab.gpu import little; assert little.install(); " + CONFIGS
    with_pydantic = "from layernorm.lab.gpu import little; assert not little.install(); " + CONFIGS
    first, second = (python(script) for script in (with_pydantic, without))
    assert second.returncode == 0, second.stderr
    assert len(json.loads(first.stdout)) > 400
    assert json.loads(second.stdout) == json.loads(first.stdout)


def test_the_command_trains(tmp_path):
    folder = str(tmp_path)
    script = WITHOUT + (
        "from layernorm.lab.gpu import __main__ as entry; "
        "given = ['train', '--here', '--pretend', '--device', 'cpu', '--steps', 'mnist/standard', "
        f"'draw/paper', '--runs', {folder!r}]; assert entry.main(given) == 0"
    )
    done = python(script)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len([line for line in lines if " µs an update" in line]) == 4, done.stdout
    assert "left out" not in done.stdout


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("mnist", "updates=0", "updates: the value should be greater than or equal to 1, got 0"),
        ("mnist", "updates=1.5", "updates: the value should be a valid int"),
        ("mnist", "updates=true", "updates: the value should be a valid int"),
        ("mnist", "learning_rate=0", "learning_rate: the value should be greater than 0, got 0"),
        ("mnist", 'hidden=["a"]', "hidden: the value should be a valid int"),
        ("mnist", "watch=1", "watch: the value should be a valid bool"),
        ("skip_thoughts", "text=books", "text: the value should be 'manuals' or 'novels' or"),
        ("attentive_reader", "dropout=1", "dropout: the value should be less than 1"),
    ],
)
def test_what_does_not_fit_is_refused(name, options, words):
    script = WITHOUT + (
        "from layernorm.lab.gpu import little; little.install(); "
        "from layernorm.lab.experiments import get, options; "
        f"given = options.assigned([{options!r}]); "
        f"get({name!r}).config('standard', 'layer', 0, **given)"
    )
    done = python(script)
    assert done.returncode == 1
    assert words in done.stderr


def test_options_are_values():
    class One(little.BaseModel):
        size: int = 1
        sizes: "tuple[int, ...]" = (1,)

    one = One(sizes=[1])
    assert one == One(size=1)
    assert len({one, One()}) == 1
    assert one.model_dump() == {"size": 1, "sizes": (1,)}
    assert one != One(size=2)
    with pytest.raises(little.ValidationError):
        one.size = 3
    with pytest.raises(TypeError, match="bounds are"):
        little.Bounds(multiple_of=2)


def test_the_experiments_steps_need_nothing_else():
    """Their modules are imported; what they read in the end needs scikit-learn at most."""
    script = WITHOUT + (
        "from layernorm.lab.gpu import little, training; little.install(); "
        "[training.plan_of(step) for step in (*training.STEPS, *training.MORE)]"
    )
    done = python(script)
    assert done.returncode == 0, done.stderr
