"""The attentive reader (the paper's section 6.2): does layer normalization make it learn to read in
fewer updates, and is it ahead of recurrent batch normalization, as the paper says?

The model (`model`) and the arms follow Cooijmans et al. (2017), whose code and
curves the paper uses; stories are drawn from a generator (`layernorm.lab.data.cloze`), fresh ones
at every update, so that a run cannot learn them by heart. All arms of a seed start from the same
weights and see the same stories.

- `none`: `torch.nn.LSTM` with biases 0. `rescaled`: the control, the same with weights scaled so
  that each term of every summed input starts with unit variance.
- `layer`: the LSTMs, and they alone, are layer-normalized, gains start at 1; `layer/gain-0.1`.
- `batch`: recurrent batch normalization with statistics for each step, gains start at 0.1;
  `batch/gain-1`; `batch/everywhere`: before the tanhs of attention and answer, too;
  `batch/sequence`: the input term with one mean and variance for the whole sequence, which
  Cooijmans et al. found best and the paper leaves out.
- `none/small`, `layer/small`: the same two with embeddings that start ten times smaller.
- `none/code`, `layer/code`: with the standard deviation that their code gives 65,829 words of 240
  numbers, 0.0055, which is 182 times smaller than PyTorch's.

Not as in the paper: generated stories, sizes and budget (but in the profile `paper`), tuned rates,
no dropout where every story is new, and embeddings and LSTMs that start as PyTorch starts them.
Nobody says over what the statistics of `everywhere` are taken; here over all words, padding left
out.

Plan. Primary: the mean of the test error over the evaluations after the start, low if an arm leaves
its plateaus after few updates; each arm at the rate with the lowest mean validation cross-entropy,
seed 1000. An arm has learned if it errs clearly less than the best trivial
strategy (the entity nearest to the question's verb) and knows 16 stories by heart. Budgets: 800
updates in the notebook, where one takes some 10 ms (none), 11 (layer) and 30 (batch); 1800 in
`standard`, whose stories have more markers, words and fillers, so that ten arms at ten seeds and
four rates take about an hour on two cores.

Pilots, one seed (900), rates from 0.003 to 0.006, about four minutes of one core in all, none part
of a record. They led from stories that nothing learned in 1000 updates (every verb and object in
two sentences of four, people named repeatedly, PyTorch's start of the reader's matrices) to these.
At rate 0.004 the three arms tried learn to read: the notebook's stories in 400 updates (none), 800
(layer) and 300 (batch), those of `standard` in 400, 1200 and 300. With embeddings that started at
half their scale, and PyTorch's start of the reader's matrices, the order was `rescaled`, `layer`,
`none`: hence the arms `…/small`.

Plan of `standard` under the rule of evidence; its first runs, which these replaced, had ten seeds,
one for the tuning, and a stricter gate. Primary are the curves of the paper's figure 2 with the
control, and that the reader with layer normalization ends better than the baseline and than batch
normalization. A run may err on one of the 16 stories that it learns by heart, in all arms alike:
batch normalization knows them all in training and misses one with its running statistics. Five
primary arms have 12 runs to tune and 10 to 20 seeds, at two rates where tuning cannot tell them
apart, the others 9. All primary arms came to 20 seeds, and tuning told all rates apart: 242 runs,
150 minutes of one core. With `--set data=cnn` it is the same on CNN's questions.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field

from layernorm.lab.analysis.curves import over_seconds
from layernorm.lab.data.cloze import World
from layernorm.lab.data.cloze_baselines import accuracy, best_trivial, most_frequent
from layernorm.lab.experiments.attentive_reader.model import (
    METHODS,
    AttentiveReader,
    Reader,
    held_out,
    source,
)
from layernorm.lab.experiments.contrasts import (
    Comparison,
    Comparisons,
    Gate,
    Margin,
    Said,
    families,
    less,
)
from layernorm.lab.experiments.experiment import TWO_STAGES, Experiment, Original, Profile
from layernorm.lab.experiments.options import Count, Options, Positive

WORLD = tuple(World.__dataclass_fields__)
Chance = Annotated[float, Field(ge=0, lt=1)]


class ReaderOptions(Options):
    """The options of a run, besides those that all experiments share.

    `hidden`, `embedding`: units of each LSTM, numbers of each word, which start with the standard
    deviation `embedding_std`. `gain`: where the norms' gains start. `everywhere`, `statistics`
    ("sequence": one for all steps of the input term), `min_samples` (cases that a step needs for
    statistics of its own): of method `batch`. `learn_initial_state`: else the LSTMs start from 0.
    `held_out`: stories of validation, and as many of test. `data`: `stories` are generated, by the
    options of `cloze.World`, which are the rest; `cnn` are CNN's own questions (`news`), cut to
    so many `sentences`.
    """

    data: Literal["stories", "cnn"] = "stories"

    batch_size: Count = 64
    clip: Positive | None = 10.0
    hidden: Count = 64
    embedding: Count = 32
    embedding_std: Positive = 1.0
    gain: Positive = 1.0
    everywhere: bool = False
    statistics: Literal["per_step", "sequence"] = "per_step"
    min_samples: Annotated[int, Field(ge=2)] = 8
    learn_initial_state: bool = False
    dropout: Chance = 0.0
    held_out: Count = 500
    entities: Count = 10
    verbs: Count = 4
    objects: Count = 4
    fillers: Count = 8
    sentences: Count = 4
    filled: Annotated[int, Field(ge=0)] = 1
    coreference: Chance = 0.2

    def world(self) -> World:
        return World(**{name: getattr(self, name) for name in WORLD})

    def model_dump(self, **how: Any) -> dict[str, Any]:
        """`data` came later: it is written where it is not what it was, so that runs made before
        keep their names."""
        found = super().model_dump(**how)
        if found["data"] == "stories":
            del found["data"]
        return found

    def check(self) -> None:
        super().check()
        self.world()
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        if self.method == "none" and self.gain != 1:
            raise ValueError(
                f"gain {self.gain} is where norms start, and method 'none' has none; leave it out"
            )
        for name, usual in (("everywhere", False), ("statistics", "per_step")):
            if getattr(self, name) != usual and self.method != "batch":
                raise ValueError(f"{name} is for method 'batch', got method {self.method!r}")
        if self.method == "batch" and self.batch_size < self.min_samples:
            raise ValueError(
                f"batch_size must be at least min_samples ({self.min_samples}), got "
                f"{self.batch_size}: no step would have statistics"
            )


BATCH = {"method": "batch", "gain": 0.1}
ARMS = {
    "none": {"method": "none"},
    "rescaled": {"method": "none", "rescaled": True},
    "layer": {"method": "layer"},
    "layer/gain-0.1": {"method": "layer", "gain": 0.1},
    "batch": BATCH,
    "batch/gain-1": {"method": "batch"},
    "batch/everywhere": {**BATCH, "everywhere": True},
    "batch/sequence": {**BATCH, "statistics": "sequence"},
    "none/small": {"method": "none", "embedding_std": 0.1},
    "layer/small": {"method": "layer", "embedding_std": 0.1},
}
CODE = {
    "none/code": {"method": "none", "embedding_std": 0.0055},
    "layer/code": {"method": "layer", "embedding_std": 0.0055},
}
PAPER = {
    "hidden": 240,
    "embedding": 240,
    "embedding_std": 0.0055,  # of the code's ±sqrt(6 / (vocabulary + embedding + 1))
    "learning_rate": 8e-5,
    "dropout": 0.5,
    "learn_initial_state": True,
    "updates": 800_000,
    "evaluations": 800,
    "held_out": 3924,
    "entities": 500,
    "verbs": 50,
    "objects": 50,
    "fillers": 65_829 - 604,
    "filled": 40,
}


def data_hash(options: ReaderOptions) -> str:
    """That of the test stories."""
    if options.data == "stories":
        return _data_hash(options.world(), options.held_out)
    return source(options).held_out(options.held_out)["test"].sha256()


@cache
def _data_hash(world: World, cases: int) -> str:
    return held_out(world, cases)["test"].sha256()


def trivial_error(options: dict) -> float:
    """The error of the best trivial strategy on the test stories of these options, in percent; with
    CNN's questions, of the entity that is mentioned most often."""
    made = ReaderOptions(**options)
    if made.data == "stories":
        return _trivial_error(made.world(), made.held_out)
    told = source(made)
    test, world = told.held_out(made.held_out)["test"], World(entities=told.entities)
    return 100 * (1 - accuracy(world, test, most_frequent))


@cache
def _trivial_error(world: World, cases: int) -> float:
    return 100 * (1 - best_trivial(world, held_out(world, cases)["test"]))


SPEED, ERROR = "mean_test_error", "best_test_error"
POINTS = Margin(
    *(2.0, "points", "the mean of the test error over the curve"),
    "what a fiftieth of the updates, spent at guessing, adds to the mean",
)
AT_END = Margin(
    *(1.0, "points", "the test error where the validation cross-entropy is lowest"),
    "ten of the 1000 test stories",
    resolution=0.1,
)
NATS = Margin(
    *(0.05, "nats", "the mean of the test cross-entropy over the quicker arm's seconds"),
    "a fiftieth of what guessing among fifteen names costs",
)
_OF = {"": (SPEED, POINTS), "error": (ERROR, AT_END), "seconds": (over_seconds("test_nll"), NATS)}
_STATEMENTS = (  # id, statement, favored arm, others, end of the name
    (
        "faster-than-plain",
        "An attentive reader with layer normalization learns in fewer updates than one without.",
        *("layer", ("none",), ""),
    ),
    (
        "faster-than-rescaled",
        "An attentive reader with layer normalization learns in fewer updates than one without "
        "normalization whose weights start at a good scale.",
        *("layer", ("rescaled",), ""),
    ),
    (
        "faster-from-a-small-start",
        "Where embeddings start ten times smaller, an attentive reader with layer normalization "
        "learns in fewer updates than one without.",
        *("layer/small", ("none/small",), ""),
    ),
    (
        "faster-than-batch",
        "An attentive reader with layer normalization learns in fewer updates than one with "
        "recurrent batch normalization.",
        *("layer", ("batch", "batch/everywhere"), ""),
    ),
    (
        "faster-than-sequence-wise-batch",
        "An attentive reader with layer normalization also learns in fewer updates than one with "
        "batch normalization by statistics of whole sequences, which the paper leaves out.",
        *("layer", ("batch/sequence",), ""),
    ),
    (
        "better-result-than-batch",
        "An attentive reader with layer normalization ends with a lower test error than one with "
        "recurrent batch normalization in the LSTM.",
        *("layer", ("batch", "batch/everywhere"), "error"),
    ),
    (
        "better-result-than-plain",
        "An attentive reader with layer normalization ends with a lower test error than one "
        "without.",
        *("layer", ("none",), "error"),
    ),
    (
        "gains-of-one-are-better",
        "An attentive reader with layer normalization learns much better with gains that start "
        "at 1 than with gains that start at 0.1.",
        *("layer", ("layer/gain-0.1",), ""),
    ),
    (
        "batch-needs-small-gains",
        "An attentive reader with recurrent batch normalization learns faster with gains that "
        "start at 0.1 than with gains that start at 1.",
        *("batch", ("batch/gain-1",), ""),
    ),
    (
        "each-steps-statistics-are-better",
        "An attentive reader with recurrent batch normalization learns faster if the input term, "
        "too, has statistics for each step instead of one for the whole sequence.",
        *("batch", ("batch/sequence",), ""),
    ),
    (
        "faster-in-seconds",
        "An attentive reader with layer normalization also learns faster in seconds than one "
        "without.",
        *("layer", ("none",), "seconds"),
    ),
)


def _network(options: ReaderOptions) -> Reader:
    told = source(options)
    return Reader(options, told.vocabulary, told.longest)


def _row(favored: str, other: str, of: str, claim: Said | None = None) -> Comparison:
    metric, margin = _OF[of]
    name = f"{favored} - {other}{of and ', '}{of}"
    plateau = metric in (SPEED, ERROR)  # runs stay at guessing until they suddenly fall, if at all
    return Comparison(name, less(favored, other, metric), margin, claim, plateau=plateau)


_PRIMARY = (
    # figure 2's curves (section 6.2; summaries A and C), and the control
    *("layer - none", "layer - rescaled", "layer - batch", "layer - batch/everywhere"),
    # section 6.2: a better result than the baseline and than batch normalization
    *("layer - none, error", "layer - batch, error"),
)
COMPARISONS = Comparisons(
    chapter="15",
    gates=(
        Gate(
            "memorizes fewer than 15 of 16 stories",
            *("train_error", 7.0),
            by_heart=True,
        ),
        Gate(
            "is not clearly below the error of the best trivial strategy",
            *(ERROR, trivial_error),
            surely=True,
            exempt=("layer/gain-0.1", "batch/gain-1", "none/small", "none/code"),
        ),
    ),
    rows=families(
        (
            *(
                _row(favored, other, of, Said(f"{id}/attentive_reader", statement))
                for id, statement, favored, others, of in _STATEMENTS
                for other in others
            ),
            _row("layer", "batch/sequence", "error"),
            _row("layer/code", "none/code", ""),
        ),
        *_PRIMARY,
    ),
)
STANDARD = {
    "updates": 1800,
    "evaluations": 18,
    "held_out": 1000,
    "entities": 15,
    "verbs": 6,
    "objects": 6,
    "filled": 2,
}
RATES = (1e-3, 2e-3, 4e-3, 8e-3)

EXPERIMENT = Experiment(
    name="attentive_reader",
    question="Does layer normalization make the attentive reader learn in fewer updates, and is it "
    "ahead of recurrent batch normalization?",
    options=ReaderOptions,
    arms={**ARMS, **CODE},
    task=AttentiveReader,
    data=data_hash,
    profiles={
        "book": Profile(
            arms=("none", "rescaled", "layer", "batch"),
            seeds=(0, 1, 2),
            learning_rates=RATES,
            options={"updates": 800, "evaluations": 16},
        ),
        "standard": Profile(*((), STANDARD), learning_rates=RATES, **TWO_STAGES),
        "paper": Profile(tuple(ARMS), PAPER),
    },
    primary="mean_test_error",
    select="validation_nll",
    averaged=("validation_nll", "validation_error", "test_nll", "test_error"),
    comparisons=COMPARISONS,
    overfit={"examples": 16, "batch_size": 16, "updates": 300, "evaluations": 5},
    original=Original(
        claim="Section 6.2: with layer-normalized LSTMs the reader trains faster and ends better "
        "than without normalization or with batch normalization.",
        data="questions about CNN news, passages of four sentences",
        ours="generated stories, fresh at every update",
        setup="240 units, batches of 64, Adam at 0.00008, dropout 0.5, learned initial states",
        updates=800_000,
        batch_size=64,
        seeds="not said; one run is one curve",
        result="figure 2: layer normalization below the others throughout; no numbers",
        shown="{hidden} units, batches of {batch_size}, dropout {dropout:g}, word vectors that "
        "start with standard deviation {embedding_std:g}",
        rows=_PRIMARY,
        network=_network,
    ),
)
