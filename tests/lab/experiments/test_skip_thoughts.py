"""Skip-thoughts: the equations word by word, neighbours at the borders of documents, where the arms
start, and what the chapter shows."""

import itertools
import math

import matplotlib.pyplot as plt
import numpy as np
import pandas
import pytest
import torch
from torch import nn

from layernorm.lab.claims.sources import reported
from layernorm.lab.data.sentences import Document
from layernorm.lab.experiments import get, report
from layernorm.lab.experiments.batches import generator
from layernorm.lab.experiments.checkpoint import seeded
from layernorm.lab.experiments.skip_thoughts import data, model, tables
from layernorm.lab.experiments.skip_thoughts.data import END, SameLength, Triples, Vocabulary
from layernorm.recurrent import LayerNormGRU

CPU = torch.device("cpu")
EXPERIMENT = get("skip_thoughts")
SMALL = {"hidden": 12, "embedding": 7, "vocabulary": 60, "batch_size": 8, "held_out": 20}


def options(arm="none", **changes):
    return EXPERIMENT.config("book", arm, 0, **{**SMALL, **changes}).options


def made(arm="none", **changes):
    with seeded(0, CPU):
        return model.Reading(options(arm, **changes), 0, CPU)


def skip(arm="none", **changes):
    """At its start, in float64, with biases and gains that are not what they start at."""
    with seeded(0, CPU):
        net = model.SkipThoughts(options(arm, **changes)).double()
        for name, parameter in net.named_parameters():
            if "bias" in name or "ln_" in name:
                nn.init.uniform_(parameter, 0.2, 0.9)
    return net


def told(*documents):
    """Documents whose sentences are as long as the numbers; every word says where it stands."""
    return [
        Document("book", tuple(tuple(f"d{d}s{s}" for _ in range(n)) for s, n in enumerate(lengths)))
        for d, lengths in enumerate(documents)
    ]


def triples(*documents, longest=29):
    found = told(*documents)
    words = Vocabulary.of([s for d in found for s in d.sentences], 1000)
    return Triples(found, words, longest), words


def test_neighbours_are_those_in_the_text_also_at_the_borders_of_documents():
    found, words = triples((2, 2, 2, 2), (2, 2, 2))
    batch = found[[0, 1, 2]]
    said = [[words.said(row) for row in part.tolist()] for part in (
        batch.before, batch.sentence, batch.after)]  # fmt: skip
    assert list(zip(*said, strict=True)) == [
        ("d0s0 d0s0", "d0s1 d0s1", "d0s2 d0s2"),
        ("d0s1 d0s1", "d0s2 d0s2", "d0s3 d0s3"),
        ("d1s0 d1s0", "d1s1 d1s1", "d1s2 d1s2"),
    ]
    assert (batch.sentence[:, -1] == END).all()


def test_parts_of_a_text_share_no_sentences_place():
    """Validation and test are whole documents, and the vocabulary is the training documents'."""
    text = data.text("manuals", 500, 29, 50)
    pages = {part: {id(d) for d in found} for part, found in text.documents.items()}
    assert not pages["train"] & (pages["validation"] | pages["test"])
    assert not pages["validation"] & pages["test"]
    training = {w for d in text.documents["train"] for s in d.sentences for w in s}
    assert set(text.vocabulary.words) <= training
    assert len(text.vocabulary.words) == 498
    assert len(text.parts["test"]) <= 50


def test_padding_has_no_words_and_masks_say_so():
    found, _ = triples((1, 2, 4), (3, 2, 1))
    batch = found[[0, 1]]
    assert batch.after.shape == (2, 5)
    assert batch.after_mask.sum(1).tolist() == [5, 2]
    assert batch.before_mask.sum(1).tolist() == [2, 4]
    assert (batch.after[~batch.after_mask] == 0).all()
    with pytest.raises(ValueError, match=r"one length, got \[3, 4\]"):
        triples((1, 2, 4), (3, 3, 1))[0][[0, 1]]


def test_an_epoch_has_every_case_once_in_batches_of_one_length():
    lengths = np.array([3, 5, 3, 3, 5, 3, 3, 9])
    batches = SameLength(lengths, 2, 0)
    assert batches.count == 5
    for epoch in range(3):
        cut = [batches(5 * epoch + i) for i in range(1, 6)]
        assert sorted(case for batch in cut for case in batch) == list(range(8))
        assert all(len(set(lengths[batch])) == 1 for batch in cut)
    assert batches(2) == SameLength(lengths, 2, 0)(2)
    orders = {
        tuple(map(tuple, (SameLength(lengths, 2, s)(i) for i in range(1, 6)))) for s in range(9)
    }
    assert len(orders) > 1


@pytest.mark.parametrize("every_step", [False, True])
@pytest.mark.parametrize("arm", ["none", "layer"])
def test_the_equations_word_by_word(arm, every_step):
    net, (found, _) = skip(arm, every_step=every_step), triples((3, 2, 4), (2, 2, 1))
    batch = found[[0, 1]]
    logits, said = net(batch)
    expected, words = [], []
    for decoder, part, mask in (
        (net.after, batch.after, batch.after_mask),
        (net.before, batch.before, batch.before_mask),
    ):
        for case in range(2):
            h = torch.zeros(1, 12).double()
            for word in batch.sentence[case]:
                h = net.encoder(net.embedding(word)[None], h)[1]
            d, x = h, torch.zeros(7).double()
            for word in part[case][mask[case]]:
                given = torch.cat([x, h[0]]) if every_step else x
                d = decoder(given[None], d)[1]
                expected.append(net.output.weight @ d[0] + net.output.bias)
                words.append(int(word))
                x = net.embedding(word)
    torch.testing.assert_close(logits, torch.stack(expected), rtol=1e-9, atol=1e-11)
    assert said.tolist() == words


@pytest.mark.parametrize("arm", ["none", "layer"])
def test_a_decoder_without_its_thought_knows_less(arm):
    """The vector is the only way from a sentence to its neighbours."""
    net, (found, _) = skip(arm), triples((3, 2, 4))
    batch = found[[0]]
    one = net(batch)[0]
    other = batch.sentence.clone()
    other[0, 0] += 1
    changed = net(data.Batch(**{**vars(batch), "sentence": other}))[0]
    assert (one - changed).abs().amax(1).min() > 0


@pytest.mark.parametrize("arm", ["none", "layer"])
def test_the_loss_starts_at_the_logarithm_of_the_vocabulary(arm):
    """States lie in [-1, 1], so no logit exceeds 0.1 times the units; the mean loss is nearer."""
    run = made(arm, vocabulary=500)
    logits, _ = run.model(run.batch(1))
    off = abs(run.loss(1).item() - math.log(500))
    assert off <= 2 * logits.abs().max().item() <= 2 * 0.1 * 12
    with torch.no_grad():
        run.model.output.weight.zero_()
    assert run.loss(1).item() == pytest.approx(math.log(500), rel=1e-5)


def test_a_summed_loss_is_the_mean_times_the_words():
    run, summed = made(), made(summed=True)
    batch = run.batch(1)
    words = int(batch.after_mask.sum() + batch.before_mask.sum())
    assert summed.loss(1).item() == pytest.approx(words * run.loss(1).item(), rel=1e-5)


def test_all_arms_of_a_seed_start_from_the_same_weights():
    models = {arm: made(arm).model for arm in ("none", "layer")}
    there = dict(models["layer"].named_parameters())
    for name, parameter in models["none"].named_parameters():
        if name in there:
            assert torch.equal(parameter, there[name]), name
    assert type(models["layer"].before) is LayerNormGRU
    assert type(models["layer"].encoder) is LayerNormGRU
    assert type(models["none"].after) is nn.GRU
    for net in models.values():
        for gate in net.encoder.weight_hh_l0.chunk(3):
            torch.testing.assert_close(gate @ gate.T, torch.eye(12), rtol=1e-5, atol=1e-5)
        assert net.embedding.weight.abs().max() <= 0.44
        assert net.after.weight_ih_l0.abs().max() <= 0.1


def test_the_input_terms_start_as_wide_as_in_the_papers_sizes():
    """Variance of W_x x: inputs times the variances of two uniform draws, (range^2 / 3) each."""
    spreads = {}
    for profile in ("book", "standard", "paper"):
        chosen = EXPERIMENT.config(profile, "none", 0).options
        variance = chosen.embedding * chosen.embedding_range**2 / 3 * model.RANGE**2 / 3
        spreads[profile] = math.sqrt(variance)
    assert spreads == pytest.approx(dict.fromkeys(spreads, 0.083), rel=0.01)


def test_the_control_starts_with_unit_variance_everywhere():
    with seeded(0, CPU):
        run = made("rescaled", hidden=32, batch_size=64)
    net, batch = run.model, run.batch(1)
    x, thought = net.embedding(batch.sentence.T), net.encode(batch.sentence)
    start = torch.zeros(1, len(thought), 32)
    every = torch.ones_like(batch.sentence.T, dtype=torch.bool)
    terms = [(net.encoder, x, start, every)]
    for decoder, words, mask in (
        (net.after, batch.after, batch.after_mask),
        (net.before, batch.before, batch.before_mask),
    ):
        terms.append((decoder, net.inputs(thought, words), thought[None], mask.T))
    for layer, x, h, mask in terms:
        states = torch.cat([h, layer(x, h)[0][:-1]])
        assert (x[mask] @ layer.weight_ih_l0.T).std().item() == pytest.approx(1, rel=1e-3)
        assert (states[mask] @ layer.weight_hh_l0.T).std().item() == pytest.approx(1, rel=0.02)
    assert net(batch)[0].std().item() == pytest.approx(1, rel=1e-3)


def test_vectors_have_length_one_and_depend_on_no_other_sentence():
    run = made("layer")
    said = [("the", "value"), ("unheard",), (), ("the",) * 5, ("the", "value")]
    found = model.vectors(run.model, run.words, said, end=True)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    for sentence, vector in zip(said, found, strict=True):
        alone = model.vectors(run.model, run.words, [sentence], end=True)[0]
        np.testing.assert_allclose(alone, vector, rtol=1e-4, atol=1e-6)
    without = model.vectors(run.model, run.words, said)
    assert np.abs(found[0] - without[0]).max() > 1e-3
    np.testing.assert_allclose(without[2], found[2], rtol=1e-5)  # empty: its end alone


def test_a_bag_of_words_counts_and_ignores_order():
    words = Vocabulary.of([("a", "b", "a")], 4)
    bags = model.counted(words, [("a", "b", "a"), ("a", "a", "b"), ("c",)])
    np.testing.assert_allclose(bags[0] * math.sqrt(6), [1, 0, 2, 1], rtol=1e-6)
    assert np.array_equal(bags[0], bags[1])
    np.testing.assert_allclose(bags[2], [math.sqrt(0.5), math.sqrt(0.5), 0, 0], rtol=1e-6)


def test_a_greedy_continuation_is_the_most_likely_word_again_and_again():
    net, (found, _) = skip("layer"), triples((3, 2, 4))
    sentence = found[[0]].sentence[0]
    said = net.continued(sentence, longest=6)
    assert 1 <= len(said) <= 6
    thought = net.encode(sentence[None])
    states = net.decode(net.after, thought, torch.tensor([said]))
    assert net.output(states)[0].argmax(1).tolist() == said


# The tasks


def test_the_end_of_a_run_measures_what_table_3_shows():
    run = made("layer", nested_from=1, updates=1, evaluations=1)
    found = run.final()
    assert {"source_error", "near_r", "near_rho", "near_mse", "words_source", "tasks"} <= set(found)
    mean = (found["source_error"] + 100 * (1 - found["near_r"])) / 2
    assert found["tasks"] == pytest.approx(mean)
    assert found["words_source"] < 40  # whose words these are is easily told
    short = made("layer", nested_from=2, updates=1, evaluations=1).final()
    assert set(short) == {name for name in found if name.startswith("words_")}


def test_frequencies_by_hand():
    """Training says a a b; a test neighbour 'a' and its end cost what these counts say."""
    words = Vocabulary.of([("d0s0",)], 3)
    train = Triples(told((2, 2, 2)), words, 29)
    text = data.Text(words, {}, {"train": train, "test": train}, (), "")
    # numbers: end 3 times, unknown 4, d0s0 2; each once more: 4, 5, 3 of 12
    neighbours = [2, 2, 0, 1, 1, 0]
    chances = {0: 4 / 12, 1: 5 / 12, 2: 3 / 12}
    expected = -sum(math.log(chances[n]) for n in neighbours) / 6
    assert model.unigram_nll(text, 3) == pytest.approx(expected)


def test_the_losses_of_a_part_by_hand():
    """With no weights in the output layer every word costs its bias; words are weighed alike."""
    run = made()
    with torch.no_grad():
        run.model.output.weight.zero_()
        run.model.output.bias[END] = 3.0
    with torch.no_grad():
        nll, wrong = model.predicted(run.model, run.parts["test"], CPU)
    said = torch.cat([run.model(run.parts["test"][[i]])[1] for i in range(len(run.parts["test"]))])
    ends = float((said == END).double().mean())
    logsum = math.log(math.exp(3) + 59)
    assert nll == pytest.approx(logsum - 3 * ends, rel=1e-6)
    assert wrong == pytest.approx(100 * (1 - ends))


def test_examples_are_a_fixed_set_in_batches_of_one_length():
    run = made(examples=16, batch_size=8)
    assert len(run.train) == 16
    assert len(set(run.train.lengths)) == 1
    cases = {tuple(row) for step in (1, 2) for row in run.batch(step).sentence.tolist()}
    assert cases == {tuple(row) for row in run.train[range(16)].sentence.tolist()}


def test_missing_novels_are_refused_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr("layernorm.lab.data.sentences.nltk_folders", lambda: [tmp_path])
    data.text.cache_clear()
    data.sentences.novels.cache_clear()
    with pytest.raises(FileNotFoundError, match=r"python -m nltk\.downloader gutenberg"):
        EXPERIMENT.document(EXPERIMENT.config("standard", "layer", 0))


def test_the_papers_profile_has_the_papers_sizes():
    paper = EXPERIMENT.config("paper", "layer", 0).options
    assert (paper.hidden, paper.embedding, paper.vocabulary) == (2400, 620, 20_000)
    assert (paper.batch_size, paper.clip, paper.longest) == (64, 5.0, 29)
    assert (paper.learning_rate, paper.updates) == (2e-4, 1_000_000)
    assert paper.summed


def test_generated_sentences_use_twenty_thousand_words_and_two_sources():
    documents = data.generated()
    used = {word for d in documents for s in d.sentences for word in s}
    assert 15_000 < len(used) <= 20_000
    assert {d.source for d in documents} == {"even", "odd"}
    assert all(5 <= len(s) < 30 for d in documents for s in d.sentences)


def test_the_box_says_what_is_not_measured(monkeypatch):
    monkeypatch.setattr("layernorm.lab.experiments.report.recorded", lambda *_: None)
    box = report.box(EXPERIMENT)
    assert box.loc["result", "here"] == "not measured yet"
    assert "0.10% of the paper's" in box.loc["updates", "here"]


def test_a_generator_for_seed_and_epoch():
    """The order of an epoch is the seed's: nothing else is drawn from it."""
    group = np.arange(6)
    cut = SameLength(np.full(6, 4), 6, 3)(1)
    assert cut == group[torch.randperm(6, generator=generator(3, 0)).numpy()].tolist()


# The paper's figure and table


def runs_of_three_arms(seeds=3):
    """A table as `records.load` gives it, of made-up values; errors are 40 at the start, 20 later,
    and each seed differs a little."""
    rows = []
    ends = {"sick_r": 0.7, "sick_rho": 0.6, "sick_mse": 0.5}
    for arm, seed, step in itertools.product(tables.ARMS, range(seeds), (0, 100, None)):
        values = {f"test_{task}": 40.0 if step == 0 else 20.0 for task in tables.ERRORS}
        values |= {f"test_{name}": value for name, value in ends.items()} | {"test_nll": 4.0}
        if step is None:
            values |= {f"words_{task}": 30.0 for task in tables.ERRORS} | ends
            values |= {f"words_{name}": 0.4 for name in ends}
            values |= {f"{task}_error": 10.0 for task in tables.ERRORS}
        rows += [
            {"arm": arm, "seed": seed, "step": step, "metric": name, "value": value + 0.01 * seed}
            for name, value in values.items()
        ]
    return pandas.DataFrame(rows)


def test_the_papers_figure_and_table_show_runs_that_are_there(monkeypatch):
    monkeypatch.setattr(tables.records, "runs", lambda *_: [1])
    monkeypatch.setattr(tables.records, "load", lambda *_, **__: runs_of_three_arms())
    frame = tables.recorded()
    shown = tables.table_3(frame, reported.TABLE_3, reported.TABLE_3_COLUMNS)
    assert shown.loc["paper: layer", "MR"] == "79.5"
    assert shown.loc["here: layer", "MR"].startswith("90")  # errors of 10 are 90% right
    assert shown.loc["here: layer, untrained (fixed penalty)", "SUBJ"].startswith("60")
    assert shown.loc["here: bag of words (fixed penalty)", "CR"].startswith("70")
    assert shown.loc["here: rescaled", "SICK r"].startswith("0.71")
    figure = tables.figure_3(frame)
    assert [ax.get_title() for ax in figure.axes] == list(tables.PANELS.values())
    accuracy = figure.axes[2].lines[0].get_ydata()
    assert accuracy == pytest.approx([59.99, 79.99])
    assert figure.axes[2].lines[-1].get_ydata()[0] == pytest.approx(69.99)
    plt.close(figure)


def test_the_papers_figure_and_table_say_what_is_not_measured():
    shown = tables.table_3(None, reported.TABLE_3, reported.TABLE_3_COLUMNS)
    assert set(shown.loc["here"]) == {"not measured yet"}
    assert shown.loc["paper: none", "SICK r"] == "0.842"
    figure = tables.figure_3(None)
    assert all(ax.texts[0].get_text() == "not measured yet" for ax in figure.axes)
    plt.close(figure)
