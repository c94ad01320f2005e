"""The attentive reader: its equations computed word by word, padding without any effect, entity
markers that are names and nothing more, where its arms start, and scores worked out by hand."""

import math
import re

import pytest
import torch
from torch import nn

from layernorm.lab.data.cloze import FIRST, PLACEHOLDER, Stories, World, draw, permuted
from layernorm.lab.experiments import get
from layernorm.lab.experiments.attentive_reader import model as task
from layernorm.lab.experiments.attentive_reader.model import Reader, rescale_
from layernorm.lab.experiments.batches import generator
from layernorm.lab.experiments.checkpoint import seeded
from layernorm.recurrent import BatchNormLSTM, LayerNormLSTM

CPU = torch.device("cpu")
EXPERIMENT = get("attentive_reader")
SMALL = {"hidden": 12, "embedding": 7, "batch_size": 16, "held_out": 40, "updates": 20}
WORLD = World()


def options(arm, **changes):
    return EXPERIMENT.config("book", arm, 0, **{**SMALL, **changes}).options


def stories(cases=10, seed=0) -> Stories:
    return draw(WORLD, cases, generator(seed))


def made(arm="none", **changes):
    with seeded(0, CPU):
        return task.AttentiveReader(options(arm, **changes), 0, CPU)


KINDS = ("none", "layer", "batch", "batch/everywhere", "batch/sequence")


def reader(arm="none", seed=0, **changes) -> Reader:
    """At its start, in float64, with gains and biases that are not what they start at."""
    with seeded(seed, CPU):
        model = Reader(options(arm, **changes), WORLD.vocabulary, WORLD.longest).double()
        for name, parameter in model.named_parameters():
            if "bias" in name or "norm" in name or re.search(r"(ln|bn)_", name):
                nn.init.uniform_(parameter, 0.2, 0.9)
    return model


def with_other_padding(told: Stories) -> Stories:
    """The same stories with any words where there was padding."""
    passages, questions = told.passages.clone(), told.questions.clone()
    for words in (passages, questions):
        padding = words == 0
        assert padding.any()
        words[padding] = torch.randint(PLACEHOLDER, WORLD.vocabulary, (int(padding.sum()),))
    return Stories(passages, told.lengths, questions, told.question_lengths, told.answers)


def watch(module, seen, name, output=False):
    """Put what the module gets, or gives, into `seen`, the first time."""

    def hook(_, args, out=None):
        seen.setdefault(name, out if output else args[0])

    add = module.register_forward_hook if output else module.register_forward_pre_hook
    add(hook)


@pytest.mark.parametrize("arm", ["none", "layer"])
def test_the_equations_word_by_word(arm):
    model, told = reader(arm).eval(), stories()
    logits, attention = model.read(told)
    for case in range(len(told)):
        words = told.passages[case, : told.lengths[case]]
        asked = told.questions[case, : told.question_lengths[case]]
        d = model.passage.layer(model.embedding(words))[0]
        q = model.question.layer(model.embedding(asked))[0][-1]
        b = model.bilinear.weight
        scores = torch.stack(
            [
                model.v.weight[0]
                @ torch.tanh(model.w_d.weight @ d_t + model.w_q.weight @ q + (b @ d_t) @ (b @ q))
                for d_t in d
            ]
        )
        alpha = scores.exp() / scores.exp().sum()
        context = sum(a * d_t for a, d_t in zip(alpha, d, strict=True))
        g = torch.tanh(
            model.w_c.weight @ context
            + model.w_c.bias
            + model.w_o.weight @ q
            + model.w_m.weight @ d.mean(0)
        )
        expected = model.output.weight @ g + model.output.bias
        torch.testing.assert_close(logits[case], expected, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(attention[case, : len(d)], alpha, rtol=1e-10, atol=1e-12)


def test_the_norms_of_everywhere_stand_before_both_tanhs():
    """With the statistics of evaluation, each is a line: gain (a - mean)/sqrt(var + eps) + bias."""
    model, told = reader("batch/everywhere").eval(), stories(2)
    d, q = torch.randn(5, 2, 12).double(), torch.randn(2, 12).double()
    mask = torch.ones(5, 2, dtype=torch.bool)
    for norm in (model.norm_attention.norm, model.norm_g.norm):
        nn.init.uniform_(norm.running_mean)
        nn.init.uniform_(norm.running_var, 0.5, 2.0)

    def normed(norm, a):
        norm = norm.norm
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        return (a - norm.running_mean) * scale + norm.bias

    both = (model.bilinear(d) * model.bilinear(q)).sum(-1, keepdim=True)
    a = normed(model.norm_attention, model.w_d(d) + model.w_q(q) + both)
    expected = model.v(torch.tanh(a)).squeeze(-1).softmax(0)
    torch.testing.assert_close(model.attention(d, q, mask), expected)

    seen = {}
    watch(model.output, seen, "g")
    watch(model.norm_g, seen, "a")
    model(told)
    torch.testing.assert_close(seen["g"], torch.tanh(normed(model.norm_g, seen["a"])))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("arm", KINDS)
def test_padding_gets_no_attention_and_changes_nothing(arm, training):
    told = stories(20)
    other = with_other_padding(told)
    one, two = (reader(arm, min_samples=2).train(training) for _ in range(2))
    (logits, attention), (again, _) = one.read(told), two.read(other)
    assert torch.equal(logits, again)
    assert (attention[told.passages == 0] == 0).all()
    assert (attention[told.passages != 0] > 0).all()
    torch.testing.assert_close(attention.sum(1), torch.ones(20).double())
    for mine, theirs in zip(one.buffers(), two.buffers(), strict=True):
        assert torch.equal(mine, theirs)
    logits.sum().backward()
    padding_alone = set(other.passages[told.passages == 0].tolist()) - set(
        torch.cat([told.passages, told.questions], 1).flatten().tolist()
    )
    for word in (0, *padding_alone):
        assert (one.embedding.weight.grad[word] == 0).all()


@pytest.mark.parametrize("arm", KINDS)
def test_a_story_is_read_alike_alone_and_beside_longer_ones(arm):
    model, told = reader(arm).eval(), stories(20)
    together = model(told)
    for case in range(20):
        length, asked = told.lengths[case], told.question_lengths[case]
        alone = Stories(
            told.passages[case : case + 1, :length],
            told.lengths[case : case + 1],
            told.questions[case : case + 1, :asked],
            told.question_lengths[case : case + 1],
            told.answers[case : case + 1],
        )
        torch.testing.assert_close(model(alone)[0], together[case], rtol=1e-9, atol=1e-11)


def test_batch_statistics_are_those_of_the_words_that_are_there():
    """After one batch, running means are that batch's; here they are computed without padding."""
    told = stories(20)
    model = reader("batch/everywhere", min_samples=2).train()
    seen = {}
    watch(model.norm_attention, seen, "a")
    model(told)
    layer = model.passage.layer
    inputs = model.embedding(told.passages) @ layer.weight_ih_l0.T
    going = [told.lengths > t for t in range(told.passages.shape[1])]
    enough = [cases for cases in going if cases.sum() > 1]
    assert len(enough) < len(going)
    assert int(enough[-1].sum()) < 20
    for t, cases in enumerate(enough):
        mean, var = inputs[cases, t].mean(0), inputs[cases, t].var(0)
        torch.testing.assert_close(layer.running_mean_ih_l0[t], mean)
        torch.testing.assert_close(layer.running_var_ih_l0[t], var)
    there = seen["a"].transpose(0, 1)[told.passages != 0]
    norm = model.norm_attention.norm
    torch.testing.assert_close(norm.running_mean, norm.momentum * there.mean(0))


@pytest.mark.parametrize("arm", KINDS)
def test_permuting_markers_and_what_the_model_knows_of_them_permutes_the_predictions(arm):
    model, told = reader(arm).eval(), stories()
    table = torch.arange(WORLD.vocabulary)
    table[FIRST : FIRST + 10] = FIRST + torch.randperm(10, generator=generator(1))
    assert not torch.equal(table, table.sort().values)
    before = model(told)
    renamed = Stories(
        table[told.passages], told.lengths, table[told.questions], told.question_lengths,
        table[told.answers],
    )  # fmt: skip
    with torch.no_grad():
        for rows in (model.embedding.weight, model.output.weight, model.output.bias):
            rows[table] = rows.clone()
    torch.testing.assert_close(model(renamed)[:, table], before, rtol=1e-10, atol=1e-12)


def test_all_arms_of_a_seed_start_from_the_same_weights():
    models = {arm: made(arm).model for arm in ("none", *KINDS[1:], "layer/gain-0.1")}
    base = dict(models["none"].named_parameters())
    for arm, model in models.items():
        there = dict(model.named_parameters())
        shared = base.keys() & there.keys()
        assert {"embedding.weight", "output.weight", "question.layer.weight_hh_l0"} <= shared
        for name in shared - {"passage.layer.bias_ih_l0", "question.layer.bias_ih_l0"}:
            assert torch.equal(base[name], there[name]), (arm, name)
    lstm = models["none"].passage.layer
    assert (lstm.bias_ih_l0 == 0).all()
    assert (lstm.bias_hh_l0 == 0).all()
    assert (models["layer"].passage.layer.bias_ih_l0 == 0).all()


@pytest.mark.parametrize(
    ("arm", "kind", "gain"),
    [
        ("layer", LayerNormLSTM, 1.0),
        ("layer/gain-0.1", LayerNormLSTM, 0.1),
        ("batch", BatchNormLSTM, 0.1),
        ("batch/gain-1", BatchNormLSTM, 1.0),
        ("batch/everywhere", BatchNormLSTM, 0.1),
    ],
)
def test_gains_start_where_the_arm_says(arm, kind, gain):
    model = made(arm).model
    prefix = "ln_" if kind is LayerNormLSTM else "bn_"
    for encoder in (model.passage, model.question):
        assert type(encoder.layer) is kind
        for term in ("ih", "hh", "c"):
            values = getattr(encoder.layer, f"{prefix}{term}_weight_l0")
            assert torch.equal(values, torch.full_like(values, gain))
    if arm == "batch/everywhere":
        for norm in (model.norm_attention.norm, model.norm_g.norm):
            assert torch.equal(norm.weight, torch.full_like(norm.weight, gain))


def test_sequence_wise_statistics_are_the_layers():
    assert made("batch/sequence").model.passage.layer.statistics == "sequence"
    assert made("batch").model.question.layer.statistics == "per_step"


def test_the_control_starts_with_unit_variance_everywhere():
    with seeded(0, CPU):
        model = Reader(options("none", hidden=32), WORLD.vocabulary, WORLD.longest)
    told = stories(256)
    rescale_(model, told)
    seen = {}
    for name in ("w_d", "w_q", "v", "w_c", "w_o", "w_m", "output"):
        watch(getattr(model, name), seen, name, output=True)
    passages, questions = (words[:, : int(n.min())] for words, n in (
        (told.passages, told.lengths), (told.questions, told.question_lengths)))  # fmt: skip
    cut = Stories(
        passages, torch.full_like(told.lengths, passages.shape[1]),
        questions, torch.full_like(told.lengths, questions.shape[1]), told.answers,
    )  # fmt: skip
    model.read(cut)
    spreads = {name: out.std().item() for name, out in seen.items()}
    assert spreads == pytest.approx(dict.fromkeys(spreads, 1.0), rel=1e-3)
    assert len(spreads) == 7
    for encoder, words in ((model.passage, passages), (model.question, questions)):
        x = model.embedding(words.T)
        h = encoder.layer(x)[0]
        assert (x @ encoder.layer.weight_ih_l0.T).std().item() == pytest.approx(1, rel=1e-3)
        assert (h[:-1] @ encoder.layer.weight_hh_l0.T).std().item() == pytest.approx(1, rel=0.02)
    d, q = model.passage.layer(model.embedding(passages.T))[0], h[-1]
    assert (model.bilinear(d) * model.bilinear(q)).sum(-1).std().item() == pytest.approx(
        1, rel=1e-3
    )


def test_learned_initial_states_are_learned_and_shared_by_all_stories():
    for arm in ("none", "layer", "batch"):
        model, told = reader(arm, learn_initial_state=True).train(), stories()
        model(told)[:, FIRST:].square().sum().backward()
        for encoder in (model.passage, model.question):
            assert encoder.h_0.shape == encoder.c_0.shape == (12,)
            assert encoder.c_0.grad.abs().max() > 0
        with torch.no_grad():
            model.passage.c_0 += 1.0
        changed = model.eval().passage(model.embedding(told.passages.T), told.lengths)
        x = model.embedding(told.passages.T)
        layer = model.passage.layer
        start = tuple(s.expand(1, 10, 12) for s in (model.passage.h_0, model.passage.c_0))
        lengths = (told.lengths,) if arm == "batch" else ()
        torch.testing.assert_close(changed, layer(x, start, *lengths)[0])
    assert reader("none").passage.h_0 is None


# A run


class Oracle(nn.Module):
    """Answers with the n-th marker of the passage, or with a certain one."""

    def __init__(self, place=0, word=None):
        super().__init__()
        self.place, self.word = place, word

    def forward(self, told):
        logits = torch.zeros(len(told), WORLD.vocabulary)
        for case, passage in enumerate(told.passages.tolist()):
            markers = [word for word in passage if FIRST <= word < FIRST + 10]
            word = self.word or (markers[self.place] if markers else 0)
            logits[case, word] = 3.0
        return logits


def test_a_reader_of_markers_moves_with_them_and_one_of_a_single_word_does_not():
    run = made(held_out=400)
    run.model = Oracle()
    assert run.final() == {"moved_with_markers": 100.0}
    run.model = Oracle(word=FIRST + 2)
    moved = run.final()["moved_with_markers"]
    told = run.parts["test"]
    told = Stories(**{**vars(told), "answers": torch.full_like(told.answers, FIRST + 2)})
    stays = permuted(told, 10, generator(task.PERMUTED)).answers == FIRST + 2
    assert moved == pytest.approx(100 * stays.double().mean().item())
    assert 5 < moved < 15


def test_errors_and_losses_by_hand():
    """Three of four answers are right; the right word has the logit 3 there and 0 else."""
    run = made()
    told = stories(4)
    first = Oracle()(told).argmax(1)
    answers = first.clone()
    answers[2] = FIRST + (first[2] - FIRST + 1) % 10
    run.parts = {"validation": Stories(**{**vars(told), "answers": answers})}
    run.model = Oracle()
    others = WORLD.vocabulary - 1
    right, wrong = (math.log(math.exp(3) + others) - logit for logit in (3, 0))
    got = run.evaluate()
    assert got["validation_error"] == 25.0
    assert got["validation_nll"] == pytest.approx((3 * right + wrong) / 4, rel=1e-6)


def test_stories_are_read_in_pieces_as_in_one(monkeypatch):
    run = made("layer", held_out=50)
    run.model.eval()
    whole = task.answered(run.model, run.parts["test"])
    monkeypatch.setattr(task, "CHUNK", 20)
    torch.testing.assert_close(task.answered(run.model, run.parts["test"]), whole)


def test_examples_are_a_fixed_set():
    run = made(examples=16, batch_size=8)
    train = {tuple(words) for words in run.parts["train"].passages.tolist()}
    for step in (1, 2, 3):
        assert {tuple(words) for words in run.batch(step).passages.tolist()} <= train
    two = {tuple(words) for step in (1, 2) for words in run.batch(step).passages.tolist()}
    assert two == train


def test_the_papers_profile_has_the_papers_sizes():
    paper = EXPERIMENT.config("paper", "layer", 0).options
    assert (paper.hidden, paper.batch_size, paper.clip) == (240, 64, 10.0)
    assert (paper.learning_rate, paper.dropout) == (8e-5, 0.5)
    assert paper.learn_initial_state
    assert paper.world().vocabulary == 65829
    assert paper.sentences == 4


def test_the_data_hash_tells_worlds_apart():
    base = options("none")
    assert EXPERIMENT.data(base) == EXPERIMENT.data(options("layer"))
    assert EXPERIMENT.data(base) != EXPERIMENT.data(options("none", entities=12))
    assert EXPERIMENT.data(base) != EXPERIMENT.data(options("none", held_out=41))
