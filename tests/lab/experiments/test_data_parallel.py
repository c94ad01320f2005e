"""Runs whose batches are spread over processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from apart import started
from lab.experiments import sharing
from torch import nn

from layernorm.lab import records
from layernorm.lab.analysis import parallel
from layernorm.lab.data import iam_ondb
from layernorm.lab.experiments import NAMES, checkpoint, data_parallel, get
from layernorm.lab.experiments.data_parallel import Workers
from layernorm.lab.experiments.run import train

REFUSED = {
    "angles": "the steps of its optimizer",
    "hidden_rates": "the steps of its optimizer",
    "order_embeddings": "all images of the batch",
}
SMALL = {"hidden": 12, "embedding": 7, "held_out": 20, "watched": 20, "examples": 17}
# Lines of different lengths, and sentences that do not depend on what is installed.
DATA = {"handwriting": {"dataset": "iam_ondb"}, "skip_thoughts": {"text": "generated"}}
# Learning rates of runs whose parts do not count alike, have noise of the whole batch, or sequences
# of different lengths, by which gradients come in another order.
UNLIKE = {"draw": 1e-3, "handwriting": 1e-3, "skip_thoughts": 1e-2, "step_statistics": 1e-3}

# Limits of `gap`, a factor of 30 and more from what twelve updates by two processes made of it both
# ways: rounding (2e-7; 3e-8; 7e-8; 1.3e-5), and gradients that are not averaged (2.5e-2; 4.5e-4;
# 1.1e-3; 1.6e-2).
ROUNDING = {"batch_size": 1e-4, "draw": 4e-6, "handwriting": 1e-5, "handwriting layer": 4e-4}
ROUNDING |= dict.fromkeys(("skip_thoughts", "step_statistics"), 1e-4)  # not so measured


def limit(name, arm):
    return ROUNDING.get(f"{name} {arm}", ROUNDING[name])


@pytest.fixture(scope="module", autouse=True)
def lines(tmp_path_factory):
    """Handwritten lines of different lengths, as those of the fonts are not, for all processes."""
    folder = tmp_path_factory.mktemp("data")
    sharing.write_lines(folder / "iam_ondb")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LAYERNORM_DATA", str(folder))
        yield
    iam_ondb.load.cache_clear()


@pytest.fixture(scope="module")
def two(lines):
    with parallel.crew(2) as crew:
        yield crew


@pytest.fixture(scope="module")
def four(lines):
    with parallel.crew(4) as crew:
        yield crew


def gap(one, other):
    """The largest difference of the curves of two results that are losses, as a share of them."""
    mine, theirs = (result["curves"] for result in (one, other))
    names = [name for name in mine if name.endswith(("_nll", "_bound", "_loss"))]
    pairs = [(x, y) for name in names
             for x, y in zip(mine[name]["value"], theirs[name]["value"], strict=True)]  # fmt: skip
    return max(abs((x - y) / x) for x, y in pairs)


@pytest.mark.parametrize("arm", ["layer-4", "none-4", "batch-4"])
@pytest.mark.parametrize("size", [2, 4])
def test_several_processes_make_one_record(request, size, arm, tmp_path):
    """That of one process to rounding, but for batch normalization."""
    crew = request.getfixturevalue({2: "two", 4: "four"}[size])
    alone = train(sharing.config(arm), device="cpu", root=tmp_path / "one")
    made = crew.ask(size, sharing.run, sharing.config(arm), tmp_path / "all")
    assert all(record.result == made[0].result for record in made)
    [file] = (tmp_path / "all").rglob("*.json")
    config = json.loads(file.read_text())["config"]
    assert config["options"].pop("workers") == size
    assert config == alone.config
    assert file.stem == made[0].key != alone.key
    assert not list((tmp_path / "all").rglob("*.checkpoint*"))
    if arm == "batch-4":
        assert gap(alone.result, made[0].result) > 0.01
    else:
        assert gap(alone.result, made[0].result) < ROUNDING["batch_size"]


def test_an_interrupted_run_goes_on_to_the_same_bits(two, tmp_path):
    config = sharing.config("batch-4")
    [whole, _] = two.ask(2, sharing.run, config, tmp_path / "whole")
    with pytest.raises(InterruptedError):
        two.ask(2, sharing.run, config, tmp_path / "parts", 9)
    [kept] = (tmp_path / "parts").rglob("*.checkpoint")
    [parts, _] = two.ask(2, sharing.run, config, tmp_path / "parts")
    assert parts.result == whole.result
    assert not kept.exists()


def test_a_batch_that_cannot_be_divided_is_refused(two, tmp_path):
    message = "batch_size 9 cannot be divided among 2 workers; choose another --nproc-per-node"
    with pytest.raises(ValueError, match=message):
        two.ask(2, sharing.run, sharing.config("layer-4", batch_size=9), tmp_path)


def small(name, arms=("none", "layer", "pre"), **others):
    """A configuration of few units and examples, in batches of eight; the first of these arms."""
    fields = get(name).options.model_fields
    options = {option: v for option, v in SMALL.items() if option in fields}
    options |= DATA.get(name, {})
    if "hidden" in fields and isinstance(fields["hidden"].default, tuple):
        options["hidden"] = [9] * len(fields["hidden"].default)
    arm = next(a for a in get(name).profile("book").arms if a.startswith(arms))
    return get(name).config("book", arm, 0, **{**options, "batch_size": 8, **others})


def task(name, **options):
    torch.manual_seed(0)
    return get(name).task(small(name, **options).options, 0, torch.device("cpu"))


def in_parts(name, workers, **options):
    """A task of whole batches, and those of the workers."""
    whole, *parts = (task(name, **options) for _ in range(1 + workers))
    for rank, part in enumerate(parts):
        data_parallel.cut(part, Workers(rank, workers))
    return whole, parts


def of_update(task, step):
    """Loss and gradient, in evaluation mode: dropout draws for each part."""
    task.model.eval()
    loss, weights = task.loss(step), [p for p in task.model.parameters() if p.requires_grad]
    return loss.detach(), nn.utils.parameters_to_vector(torch.autograd.grad(loss, weights))


def assert_parts_make_the_batch(whole, parts, step):
    loss, gradient = of_update(whole, step)
    losses, gradients = map(torch.stack, zip(*(of_update(p, step) for p in parts), strict=True))
    assert losses.mean().item() == pytest.approx(loss.item(), rel=1e-5)
    assert (gradients.mean(0) - gradient).norm() < 1e-5 * gradient.norm()
    assert losses.max() - losses.min() > 1e-6  # they are not the same examples


@pytest.mark.parametrize("name", NAMES)
def test_the_mean_of_the_parts_losses_is_that_of_the_batch(name):
    """Loss and gradient. Of the 17 examples of a sequence study and of skip-thoughts, the last of
    an epoch is a batch of its own."""
    if name in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[name]):
            data_parallel.cut(task(name), Workers(0, 2))
        return
    whole, parts = in_parts(name, 2)
    for step in (1, 2, 3):
        assert_parts_make_the_batch(whole, parts, step)


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("summed", [False, True])
def test_sentences_in_batches_of_every_size(summed, workers):
    """A length's last batch of an epoch may have any number of sentences, fewer than workers,
    too."""
    whole, parts = in_parts("skip_thoughts", workers, examples=None, summed=summed)
    steps = {len(whole.shuffled(step)): step for step in range(1, whole.shuffled.count + 1)}
    assert set(steps) == set(range(1, 9))
    for step in steps.values():
        assert_parts_make_the_batch(whole, parts, step)


def test_a_batch_smaller_than_the_number_of_workers_has_a_gradient_of_every_weight():
    """Zeros, in those that have no sentence of it: the others wait for them."""
    whole, parts = in_parts("skip_thoughts", 4, examples=None)
    step = next(step for step in range(1, 2000) if len(whole.shuffled(step)) == 1)
    norms = [of_update(part, step)[1].norm().item() for part in parts]
    assert norms[:3] == [0, 0, 0] < norms[3:]


def test_evaluations_of_pictures_draw_the_noise_of_all():
    whole, [part, _] = in_parts("draw", 2)
    with torch.no_grad():
        assert part.evaluate() == whole.evaluate()
    assert part.final() == whole.final()


@pytest.mark.parametrize("arm", ["none", "layer"])
@pytest.mark.parametrize("name", UNLIKE)
def test_unlike_parts_make_the_run_of_one(two, name, arm, tmp_path):
    config = small(name, arm, updates=12, evaluations=4, learning_rate=UNLIKE[name])
    alone = train(config, device="cpu", save=False)
    [made, _] = two.ask(2, sharing.run, config, tmp_path)
    assert gap(alone.result, made.result) < limit(name, arm)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_every_experiment_that_can_be_divided_makes_one_record(two, name, tmp_path):
    """By its own trainer, where it has one; interrupted after its second update, it goes on."""
    config = small(name, updates=4, evaluations=2)
    [whole, other] = two.ask(2, sharing.run, config, tmp_path / "whole")
    assert whole.result == other.result
    with pytest.raises(InterruptedError):
        two.ask(2, sharing.run, config, tmp_path / "parts", 4)
    [kept] = (tmp_path / "parts").rglob("*.checkpoint")
    [parts, _] = two.ask(2, sharing.run, config, tmp_path / "parts")
    assert parts.result == whole.result
    [file] = (tmp_path / "parts").rglob("*.json")
    record = records.read(file)
    assert (record.config["options"]["workers"], kept.exists()) == (2, False)
    assert whole.result["curves"]["batch_loss"]["step"] == [2, 4]


def torchrun(root, processes, config, *more, module="layernorm", **environment):
    """The run, by the command that how-to-run shows."""
    plain = get(config.experiment).config("book", config.arm, 0).options
    options = dict(set(config.options) - set(plain))
    where = ["--standalone", f"--nproc-per-node={processes}", *more]
    sets = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
    what = ["run", config.experiment, "--arm", config.arm, "--device", "cpu", *sets]
    env = {**os.environ, "LAYERNORM_RUNS": str(root), "OMP_NUM_THREADS": "1", **environment}
    return started("-m", "torch.distributed.run", *where, "-m", module, *what, env=env)


def made_by(command, root):
    """The one record that it leaves, and its messages."""
    out, err = command.communicate()
    assert command.returncode == 0, err
    [file] = root.rglob("*.json")
    assert out.count("record: ") == 1
    assert file.name in out
    return records.read(file), err


@pytest.mark.parametrize(("processes", "arm"), [(2, "layer-4"), (4, "batch-4")])
def test_torchrun(tmp_path, processes, arm):
    """As with the crews above: the record of one process, but for batch normalization."""
    config = sharing.config(arm)
    with torchrun(tmp_path, processes, config) as command:
        record, _ = made_by(command, tmp_path)
    assert record.config["options"]["workers"] == processes
    alone = train(config, device="cpu", save=False)
    assert (gap(alone.result, record.result) < ROUNDING["batch_size"]) == (arm == "layer-4")


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="pgrep is not installed")
def test_a_worker_that_is_killed_is_started_again_and_goes_on_to_the_same_bits(two, tmp_path):
    """By torchrun, which ends the other one, too; the crew makes the run without interruption.

    Processes that start again must not find the addresses of those that died, as they now and
    then do in the store that torchrun shares with them.
    """
    config = sharing.config("layer-4", updates=300)
    often = {"module": sharing.__name__, "PYTHONPATH": os.pathsep.join(sys.path)}
    own_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    parts = tmp_path / "parts"
    with torchrun(parts, 2, config, "--max-restarts=1", **often, **own_store) as command:
        while not (kept := list(tmp_path.rglob("*.checkpoint"))):
            assert command.poll() is None, command.communicate()
            time.sleep(0.05)
        step = checkpoint.read(kept[0])["done"]["step"]
        listed = subprocess.run(["pgrep", "-P", str(command.pid)], capture_output=True, text=True)
        os.kill(int(listed.stdout.split()[-1]), signal.SIGKILL)
        record, err = made_by(command, parts)
    told = [int(line.split()[1]) for line in err.splitlines() if line.startswith("update ")]
    assert 0 < step < 300
    assert told.count(0) == 1  # it did not begin anew
    assert set(told) == {0, 75, 150, 225, 300}
    assert not kept[0].exists()
    [whole, _] = two.ask(2, sharing.run, config, tmp_path / "whole")
    assert record.result == whole.result
