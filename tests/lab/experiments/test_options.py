"""Options that an experiment accepts and refuses; the cases of a batch."""

import math
import re
from dataclasses import replace

import pytest
import torch
from lab.experiments import toy_experiment

from layernorm.lab.experiments import get
from layernorm.lab.experiments.batches import Shuffled, generator
from layernorm.lab.experiments.experiment import Profile
from layernorm.lab.experiments.options import Options, assigned, make
from layernorm.lab.experiments.planning import Sweep

pytestmark = pytest.mark.usefixtures("toy")


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


ABOVE_0 = "learning_rate: the value should be greater than 0, got "
REFUSED = {
    "negative": ({"learning_rate": -0.1}, ABOVE_0 + "-0.1"),
    "zero": ({"learning_rate": 0}, ABOVE_0 + "0"),
    "nan": ({"learning_rate": math.nan}, "learning_rate: the value should be a finite number"),
    "infinite": ({"clip": math.inf}, "clip: the value should be a finite number, got inf"),
    "text": ({"updates": "ten"}, "updates: the value should be a valid integer, got 'ten'"),
    "text of a number": ({"updates": "10"}, "updates: the value should be a valid integer"),
    "bool for int": ({"updates": True}, "updates: the value should be a valid integer, got True"),
    "bool for float": ({"noise": True}, "noise: the value should be a valid number, got True"),
    "float for int": ({"updates": 10.0}, "updates: the value should be a valid integer, got 10.0"),
    "int for bool": ({"rescaled": 1}, "rescaled: the value should be a valid boolean, got 1"),
    "none": ({"updates": None}, "updates: the value should be a valid integer, got None"),
    "too few": ({"batch_size": 0}, "batch_size: the value should be greater than or equal to 1"),
    "too many": ({"updates": 10**24}, "should be less than or equal to 1000000000, got 1"),
    "too large": ({"hidden": [10**12]}, "hidden.0: the value should be less than or equal to 10"),
    "too often": ({"updates": 10**9, "evaluations": 10**6}, "at most 100000, as all are kept"),
    "too long to show": ({"updates": "x" * 10**6}, "got 'xxxxxxxxxxxx...xxxxxxxxxxxxx'"),
    "too deep": ({"hidden": deep(500)}, "recursion limit exceeded"),
    "far too deep": ({"hidden": deep(10**5)}, "options must be numbers, strings, lists or None"),
    "in a list": ({"hidden": [6, 0]}, "hidden.1: the value should be greater than or equal to 1"),
    "no list": ({"hidden": 6}, "hidden: the value should be a valid array, got 6"),
    "word": ({"precision": "float16"}, "should be 'float32' or 'bfloat16', got 'float16'"),
    "misspelt": ({"learning_rat": 0.1}, "unknown option 'learning_rat'; did you mean 'learning_"),
    "unknown": ({"xyz": 0.1}, "unknown option 'xyz'; there are method, learning_rate, "),
    "object": ({"hidden": torch.ones(2)}, "options must be numbers, strings, lists or None"),
    "evaluations": ({"evaluations": 31}, "evaluations must be at most updates (30), got 31"),
    "batch": (
        {"examples": 4},
        "batch_size 8 exceeds the 4 training examples; use a smaller batch_size or more examples",
    ),
    "control": ({"rescaled": True}, "control of method 'none', got method 'layer'; leave"),
    "two at once": ({"updates": 0, "clip": -1}, "got 0; clip: the value should be greater than 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_option_that_does_not_fit_is_named_with_what_would(case):
    values, message = REFUSED[case]
    with pytest.raises(ValueError, match=re.escape(message)):
        get("toy").config("book", "layer", 0, **values)


def test_what_fits_is_taken_as_it_is():
    values = {"learning_rate": 1, "hidden": [3, 4], "clip": None, "examples": 8, "updates": 3}
    got = make(toy_experiment.ToyOptions, values)
    assert (got.learning_rate, got.hidden, got.clip, got.updates) == (1.0, (3, 4), None, 3)
    assert type(got.learning_rate) is float
    with pytest.raises(ValueError, match="frozen"):
        got.updates = 4


def test_options_come_from_the_profile_the_arm_the_profiles_arm_and_the_call_in_this_order():
    toy = get("toy")
    assert toy.config("plain", "none", 0).options.updates == 20
    assert toy.config("plain", "batch", 0).options.learning_rate == 0.05
    assert toy.config("plain", "layer", 0).options.learning_rate == Options().learning_rate
    assert toy.config("plain", "batch", 0, learning_rate=0.2).options.learning_rate == 0.2
    assert toy.config("plain", "wide", 0).options.hidden == (9,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: get("tou"), "unknown experiment 'tou'; did you mean 'toy'?"),
        (lambda: get("zzz"), "unknown experiment 'zzz'; there are mnist, "),
        (lambda: get("toy").config("bok", "layer", 0), "unknown profile 'bok'; did you mean 'book"),
        (lambda: get("toy").config("book", "leyer", 0), "unknown arm 'leyer'; did you mean 'layer"),
        (lambda: get("toy").config("book", "layer", -1), "seed must be an integer from 0 to 2"),
        (lambda: get("toy").config("book", "layer", True), "2**31 - 1, got True"),
        (lambda: get("toy").config("book", "layer", 2**31), "got 2147483648"),
        (lambda: Sweep("toy", "book", ("wide",)), "unknown arm of profile 'book' 'wide'"),
        (lambda: Sweep("toy", "book", ("nine",)), "'nine'; did you mean 'none'?"),
        (lambda: Sweep("toy", "book", seeds=(0, -1)), "seed must be an integer"),
        (lambda: Sweep("toy", "book", seeds=(0, 0)), "seeds must differ, got 0, 0"),
        (lambda: Sweep("toy", "book", ("none", "none")), "arms must differ, got none, none"),
        (lambda: Sweep("toy", "book", seeds=(1000,)), "seed 1000 chooses the learning rates"),
        (lambda: Sweep("toy", "book", options={"hiden": [3]}), "did you mean 'hidden'?"),
        (lambda: Sweep("toy", "book", options={"evaluations": 20}), "at most updates (10), got 20"),
    ],
)
def test_names_and_seeds_that_do_not_exist_are_refused(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"select": "test_nll"}, "select must be a metric of validation examples, got 'test_nll'"),
        ({"averaged": ("test_nll",)}, "averaged must hold 'validation_nll'"),
        (
            {"tuned_on": "test_nll"},
            "tuned_on must be a metric of validation examples, got 'test_nll'",
        ),
        ({"profiles": {"book": Profile(("leyer",))}}, "unknown arm 'leyer'"),
    ],
)
def test_a_plan_that_chooses_by_test_data_or_lacks_an_arm_cannot_be_made(change, message):
    with pytest.raises(ValueError, match=message):
        replace(toy_experiment.EXPERIMENT, **change)


def test_a_configuration_is_plain_values_with_a_key_of_its_own():
    config = get("toy").config("book", "layer", 3, hidden=[3, 4])
    document = get("toy").document(config)
    assert document["options"]["hidden"] == (3, 4)
    assert "method" not in document["options"]
    assert {k: document[k] for k in ("experiment", "profile", "arm", "method", "seed")} == {
        "experiment": "toy", "profile": "book", "arm": "layer", "method": "layer", "seed": 3
    }  # fmt: skip
    others = [
        config.in_profile("plain"),
        get("toy").config("book", "layer", 4, hidden=[3, 4]),
        get("toy").config("book", "layer", 3, hidden=[4, 3]),
    ]
    assert len({config.key(), *(other.key() for other in others)}) == 4


def test_assignments_are_json_or_a_word():
    texts = ["a=1", "b=0.5", "c=true", "d=null", "e=[1, 2]", "f=layer", "g=", "h=x=y", "i=1e-3"]
    values = (1, 0.5, True, None, [1, 2], "layer", "", "x=y", 0.001)
    assert assigned(texts) == dict(zip("abcdefghi", values, strict=True))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["updates"], "expected key=value, for instance learning_rate=0.01, got 'updates'"),
        (["=3"], "expected key=value, .* got '=3'"),
        (["hidden=" + "[" * 10**5], "option 'hidden' cannot be read: maximum recursion depth"),
        (["updates=" + "9" * 5000], "option 'updates' cannot be read: Exceeds the limit"),
        (["updates=3", "updates=4"], "option 'updates' is given twice"),
    ],
)
def test_assignments_that_are_none_are_refused(texts, message):
    with pytest.raises(ValueError, match=message):
        assigned(texts)


def test_an_epoch_shows_every_case_once_and_leaves_out_a_partial_batch():
    batches = Shuffled(cases=10, size=3, seed=0)
    epochs = [torch.cat([batches(3 * epoch + i) for i in (1, 2, 3)]) for epoch in range(3)]
    assert [len(set(epoch.tolist())) for epoch in epochs] == [9, 9, 9]
    assert len({tuple(epoch.tolist()) for epoch in epochs}) == 3


def test_a_batch_depends_on_seed_and_update_alone():
    batches, again = Shuffled(40, 8, seed=1), Shuffled(40, 8, seed=1)
    before = torch.get_rng_state()
    order = [batches(step).tolist() for step in range(1, 20)]
    assert [again(step).tolist() for step in range(19, 0, -1)] == order[::-1]
    assert torch.equal(torch.get_rng_state(), before)
    assert Shuffled(40, 8, seed=2)(1).tolist() != order[0]


@pytest.mark.parametrize("size", [0, 41])
def test_a_batch_larger_than_the_data_is_refused(size):
    with pytest.raises(ValueError, match=f"from 1 to the 40 training examples, got {size}; use a"):
        Shuffled(40, size, seed=0)
    assert len(Shuffled(40, 40, seed=0)(1)) == 40


def test_generators_of_different_numbers_are_unrelated():
    seeds = [(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 10), (11, 0)]
    draws = [tuple(torch.rand(4, generator=generator(*s)).tolist()) for s in seeds]
    assert len(set(draws)) == len(seeds)
    same = [torch.rand(4, generator=generator(3, 4)).tolist() for _ in range(2)]
    assert same[0] == same[1]
