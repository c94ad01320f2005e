"""What sentences of pages say of speeds is what the records say: a new record that differs fails
here until the sentences follow it."""

import re
from statistics import median

import pairs
import pytest

from layernorm.lab.analysis.compiled import MEMORY
from layernorm.lab.benchmarks.measure import resume
from layernorm.lab.benchmarks.norms.implementations import OURS
from layernorm.lab.benchmarks.recurrent.subjects import BASELINE
from layernorm.lab.claims.verdicts import Stored

COUNTS = {"eight": 8, "nine": 9, "one": 1, "three": 3, "five": 5}
GPU = "H200"


def page(name):
    """A page's words, with one space between each."""
    return " ".join((pairs.ROOT / name).read_text().split())


def chapter(number):
    [path] = (pairs.ROOT / "notebooks").glob(f"{number}-*.md")
    return page(path.relative_to(pairs.ROOT))


def told(pattern, text):
    """The numbers in the one place that matches, where the pattern has #."""
    [found] = re.findall(pattern.replace("#", r"(\d+(?:\.\d+)?)"), text)
    return found if isinstance(found, tuple) else (found,)


def measured(benchmark, **fixed):
    """Rows of the GPU; the dtype of the sentences is bfloat16."""
    return [
        row
        for row in resume.recorded(benchmark)
        if GPU in row.machine
        and row.dtype == "bfloat16"
        and all(getattr(row, name) == value for name, value in fixed.items())
    ]


def layers(kind, implementation):
    rows = measured("recurrent", implementation=implementation, mode="training")
    return [row for row in rows if row.options["kind"] == kind]


def ends(values):
    """The smallest and the largest of these ratios, as in a text."""
    return f"{min(values):.2f}", f"{max(values):.2f}"


def norms(mode, implementation=OURS):
    return {row.shape: row for row in measured("layer", mode=mode, implementation=implementation)}


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (chapter(11), "our LSTM takes # of the time of cuDNN's, and our GRU #. We"),
        (
            page("README.md"),
            "fused LSTM trains 100 steps of 64 sequences with 512 units in # of the time of "
            "cuDNN's, which has no norms, and the GRU in #. ",
        ),
    ],
    ids=["chapter 11", "README"],
)
def test_ratios_of_the_layers_to_cudnns(text, pattern):
    ratios = [row.ratio for kind in ("lstm", "gru") for row in layers(kind, "fused")]
    assert told(pattern, text) == tuple(f"{ratio:.2f}" for ratio in ratios)


def test_one_shape_of_the_layers_is_measured():
    rows = [row for kind in ("lstm", "gru") for row in layers(kind, "fused")]
    assert {row.shape for row in rows} == {(100, 64, 512, 512)}
    assert {row.baseline for row in rows} == {BASELINE}
    assert "faster than cuDNN's layers at the one shape that is measured so far" in chapter(11)
    words = "trains faster than cuDNN's layers without norms, at the one shape that is measured"
    assert words in page("book/which-normalization.md")
    assert all(row.ratio_high < 1 for row in rows)


def test_one_kernel_for_all_steps_is_slower():
    assert "keeps the weights on the chip and is yet the slower one" in chapter(11)
    for kind in ("lstm", "gru"):
        [steps], [whole] = layers(kind, "fused"), layers(kind, "persistent")
        assert steps.ratio_high < whole.ratio_low


def test_no_record_times_the_definition_of_a_layer():
    assert "as no record times the definition yet" in chapter(11)
    assert not measured("recurrent", implementation="definition")


def test_how_long_the_cpu_takes_to_queue_a_norm():
    words = "forward in some # µs, where Python takes about # µs to launch a Triton kernel, longer"
    found = {
        name: median(1e6 * row.host for row in norms("forward", name).values())
        for name in ("torch", "liger", "definition", OURS)
    }
    about = round(found[OURS], -2)
    assert told(words, chapter(12)) == (f"{found['torch']:.0f}", f"{about:.0f}")
    assert min(found, key=found.get) == "torch"
    assert found[OURS] > max(1e6 * row.seconds for row in norms("forward").values())
    assert "the package's kernel comes nearest to the speed of a copy" in chapter(12)
    for name in ("torch", "liger", "definition"):
        for shape, row in norms("forward", name).items():
            assert row.fraction < norms("forward")[shape].fraction


def test_ratios_of_the_norm_to_torchs():
    forward, backward = (
        [row.ratio for row in norms(mode).values()] for mode in ("forward", "backward")
    )
    words = "takes # to # of the time of PyTorch's own forward, and # to # backward"
    assert told(words, chapter(13)) == ends(forward) + ends(backward)
    words = "layer-norm kernel takes # to # of the time of PyTorch's own on the GPU"
    both = [row.ratio for row in norms("forward+backward").values()]
    assert told(words, page("README.md")) == ends(forward + backward + both)


def test_ligers_kernel():
    low, high = told("and takes # to # times as long backward", chapter(13))
    theirs, ours = norms("backward", "liger"), norms("backward")
    times = [row.seconds / ours[shape].seconds for shape, row in theirs.items()]
    assert (low, high) == (f"{min(times):.1f}", f"{max(times):.1f}")
    assert "nearly as fast forward up to 4,096 units" in chapter(13)
    for shape, row in norms("forward", "liger").items():
        assert (row.seconds / norms("forward")[shape].seconds < 1.1) == (shape[1] <= 4096)


def test_shares_of_a_copys_speed():
    words = (
        r"With 16,384 rows of 4,096 units, 134 MB, it is #% forward and #% backward\. With 4,096 "
        r"rows of 1,024 units it is #% and #%: .*? Backward at 16,384 units it is #%: .*? But "
        r"with 4,096 rows of 4,096 units, and room for two programs, it is #%, too\."
    )
    forward, backward = norms("forward"), norms("backward")
    many, short, long, square = (16384, 4096), (4096, 1024), (4096, 16384), (4096, 4096)
    found = forward[many], backward[many], forward[short], backward[short]
    found += backward[long], backward[square]
    shares = [f"{100 * row.fraction:.0f}" for row in found]
    assert list(told(words, chapter(13))) == shares
    assert "the kernel takes about three times the predicted time" in chapter(13)
    for row in (forward[short], backward[short]):
        assert round(row.seconds / (row.traffic / MEMORY)) == 3


@pytest.mark.parametrize("mode", ["forward", "backward"])
def test_measured_times_beside_the_least(mode):
    text = (pairs.ROOT / "CONTRIBUTING.md").read_text()
    [table] = re.findall(r"^\| width \|.*\n\|[-|]*\|\n(?:\|.*µs \|.*\n){6}", text, re.M)
    lines = [line.strip("| ").split("|") for line in table.splitlines()]
    told = {name.strip(): [cell.strip() for cell in cells] for name, *cells in lines}
    found = {str(row.shape[1]): row for row in norms(mode).values() if row.shape[0] == 4096}
    times = [
        f"{1e6 * found[width].seconds:.1f}" if width in found else "" for width in told["width"]
    ]
    assert told[f"{mode}: measured, µs"] == times


def test_shapes_at_which_a_layer_takes_no_longer_on_a_cpu():
    words = (
        r"For the GRU an update does not take significantly longer at any of (\w+) shapes; for the "
        r"LSTM this holds at (\w+), and (\w+) is open"
    )
    counts = [COUNTS[word] for word in told(words, page("book/which-normalization.md"))]
    found = Stored().verdicts["no-significant-cost-per-step/recurrent_cpu"]["evidence"]
    pattern = "LSTM supported here on #, inconclusive on #; GRU supported here on #"
    lstm, unclear, gru = map(int, told(pattern, found))
    assert counts == [gru, lstm, unclear]


def test_aims_missed_by_packed_sequences():
    words = (
        r"eight times as fast on one thread, which fails in (\w+) of (\w+) cases and is open in "
        r"(\w+), and six times on two threads, which fails in (\w+)\."
    )
    fails, cases, unclear, fails_on_two = (COUNTS[word] for word in told(words, chapter(11)))
    for claim, wanted in (
        ("eight", {"opposite here": fails, "inconclusive": unclear}),
        ("six", {"opposite here": fails_on_two}),
    ):
        evidence = Stored().verdicts[f"{claim}-times-faster/packed_cpu"]["evidence"]
        found = re.findall(r"([a-z][a-z ]*) on (\d+)", evidence.split("LSTM ")[1])
        counts = {verdict: int(count) for verdict, count in found}
        assert counts == wanted | {"supported here": cases - sum(wanted.values())}
