"""The transformer: its equations, against torch's; causality; its task, optimizers and plan."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from layernorm.lab.data.characters import split
from layernorm.lab.experiments import get
from layernorm.lab.experiments.run import Trainer, train
from layernorm.lab.experiments.transformer import task as tasks
from layernorm.lab.experiments.transformer.model import Attention, Branch, Transformer, rescale_
from layernorm.lab.experiments.transformer.task import Muon, Scheduled, orthogonal, schedule

PLAN = get("transformer")
SMALL = {"depth": 2, "hidden": 12, "context": 9, "heads": 3, "held_out": 5, "batch_size": 4}
PLACED = ["pre", "post", "peri"]


def options(arm="layer", **more):
    return PLAN.config("book", arm, 0, **{**SMALL, **more}).options


def moved(module, dtype=torch.float64):
    """In float64, with no gain of 1 and no bias of 0."""
    torch.manual_seed(1)
    module = module.to(dtype)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return module.eval()


def text(n=3, t=9):
    return torch.randint(96, (n, t), generator=torch.Generator().manual_seed(2))


@torch.no_grad()
def test_attention_is_the_direct_sum():
    f, x = moved(Attention(options())), torch.randn(2, 5, 12, dtype=torch.float64)
    q, k, v = (f.qkv(x)[..., 12 * i : 12 * (i + 1)] for i in range(3))
    expected = torch.zeros_like(x)
    for n in range(2):
        for head in range(3):
            part = slice(4 * head, 4 * head + 4)
            for t in range(5):
                scores = [float(q[n, t, part] @ k[n, s, part]) / 2 for s in range(t + 1)]
                weights = [math.exp(s) for s in scores]
                for s, weight in enumerate(weights):
                    expected[n, t, part] += weight / sum(weights) * v[n, s, part]
    torch.testing.assert_close(f(x), f.out(expected), rtol=1e-12, atol=1e-12)


def test_attention_is_torchs():
    f, x = moved(Attention(options())), torch.randn(2, 7, 12, dtype=torch.float64)
    torchs = nn.MultiheadAttention(12, 3, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        torchs.in_proj_weight.copy_(f.qkv.weight)
        torchs.in_proj_bias.copy_(f.qkv.bias)
    torchs.out_proj.load_state_dict(f.out.state_dict())
    mask = torch.ones(7, 7, dtype=torch.bool).triu(1)
    expected, weights = torchs(x, x, x, attn_mask=mask, average_attn_weights=False)
    torch.testing.assert_close(f(x), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(f.logits(x).softmax(-1), weights, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("first", [True, False])
def test_a_block_is_torchs_with_its_weights(first):
    made = options(placement="pre" if first else "post")
    model = moved(Transformer(made))
    attention, mlp = model.branches[:2]
    torchs = nn.TransformerEncoderLayer(
        12, 3, 48, 0.0, "gelu", batch_first=True, norm_first=first, dtype=torch.float64
    )
    torchs.load_state_dict(
        {
            "self_attn.in_proj_weight": attention.f.qkv.weight,
            "self_attn.in_proj_bias": attention.f.qkv.bias,
            **{f"self_attn.out_proj.{k}": v for k, v in attention.f.out.state_dict().items()},
            **{f"linear1.{k}": v for k, v in mlp.f.up.state_dict().items()},
            **{f"linear2.{k}": v for k, v in mlp.f.out.state_dict().items()},
            **{f"norm1.{k}": v for k, v in attention.norm.state_dict().items()},
            **{f"norm2.{k}": v for k, v in mlp.norm.state_dict().items()},
        }
    )
    x = torch.randn(2, 9, 12, dtype=torch.float64)
    mask = nn.Transformer.generate_square_subsequent_mask(9, dtype=torch.float64)
    expected = torchs(x, src_mask=mask, is_causal=True)
    torch.testing.assert_close(mlp(attention(x)), expected, rtol=1e-10, atol=1e-10)
    other = options(placement="post" if first else "pre")
    wrong = [Branch(other, branch.f, 1).double() for branch in (attention, mlp)]
    for mine, branch in zip(wrong, (attention, mlp), strict=True):
        mine.norm.load_state_dict(branch.norm.state_dict())
    assert not torch.allclose(wrong[1](wrong[0](x)), expected, atol=0.1)


@pytest.mark.parametrize("arm", ["layer", "post", "peri", "qk", "rescaled", "dyt/much"])
def test_no_position_reads_a_later_one(arm):
    model, before = moved(Transformer(options(arm))), text()
    after = before.clone()
    after[:, 5:] = (after[:, 5:] + 1) % 96
    one, two = model(before), model(after)
    torch.testing.assert_close(one[:, :5], two[:, :5], rtol=1e-12, atol=1e-12)
    assert (one[:, 5:] - two[:, 5:]).abs().amin((0, 2)).max() > 1e-6
    earlier = before.clone()
    earlier[:, 0] = (earlier[:, 0] + 1) % 96
    assert ((model(earlier) - one).abs().amax((0, 2)) > 1e-9).all()


def test_each_placement_is_its_equation():
    x = torch.randn(2, 9, 12, dtype=torch.float64)
    for placement in PLACED:
        branch = moved(Branch(options(placement=placement), Attention(options()), 3))
        f, ln = branch.f, branch.norm
        expected = {
            "pre": lambda f=f, ln=ln: x + f(ln(x)),
            "post": lambda f=f, ln=ln: ln(x + f(x)),
            "peri": lambda f=f, ln=ln, b=branch: x + b.norm_out(f(ln(x))),
        }[placement]()
        torch.testing.assert_close(branch(x), expected, rtol=1e-12, atol=1e-12)
    scaling = moved(Branch(options("layer/scaling"), Attention(options()), 3))
    expected = x + scaling.f(scaling.norm(x) / math.sqrt(3))
    torch.testing.assert_close(scaling(x), expected, rtol=1e-12, atol=1e-12)
    assert [b.scale for b in Transformer(options("layer/scaling")).branches] == [
        1.0, 1.0, 2**-0.5, 2**-0.5]  # fmt: skip


def test_only_norms_that_come_first_have_a_last_one():
    for placement in PLACED:
        last = Transformer(options(placement=placement)).norm
        assert isinstance(last, nn.Identity) == (placement == "post")


def test_a_scaled_start_divides_what_is_written_to_the_stream():
    torch.manual_seed(0)
    plain = dict(Transformer(options()).named_parameters())
    torch.manual_seed(0)
    scaled = dict(Transformer(options("layer/scaled")).named_parameters())
    for name, p in plain.items():
        factor = 0.5 if ".f.out.weight" in name else 1.0  # 1 / √(2 · 2 blocks)
        torch.testing.assert_close(scaled[name], factor * p)


def test_all_arms_of_a_seed_start_from_the_same_matrices():
    found = []
    for arm in ("layer", "post", "rms", "peri", "none", "dyt/much", "derf/much", "qk"):
        torch.manual_seed(0)
        named = Transformer(options(arm)).named_parameters()
        found.append({name: p for name, p in named if p.dim() == 2})
    for one, two in pairwise(found):
        assert one.keys() == two.keys()
        assert all(torch.equal(one[name], two[name]) for name in one)


def test_the_control_starts_with_unit_variance():
    torch.manual_seed(0)
    model = Transformer(options("rescaled", hidden=24, context=40)).eval()
    with torch.no_grad():  # a start that is far off
        for branch in model.branches:
            branch.f.out.weight *= 7
    sample = text(32, 40)
    rescale_(model, sample)
    stream = list(model.stream(sample))
    for branch, before, after in zip(model.branches, stream[:-1], stream[1:], strict=True):
        first = branch.f.qkv if isinstance(branch.f, Attention) else branch.f.up
        assert first(before).std().item() == pytest.approx(1, abs=1e-4)
        assert (after - before).std().item() == pytest.approx(0.5, abs=1e-4)  # 1 / √(2 · 2)
    assert model(sample).std().item() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("arm", ["layer", "post", "peri", "layer/scaling", "qk", "derf/much"])
def test_gradients_are_those_of_the_equations(arm):
    model = moved(Transformer(options(arm, depth=1, hidden=6, heads=2, context=3)))
    names, values = zip(*model.named_parameters(), strict=True)
    sample = text(2, 3)

    def loss(*parameters):
        logits = torch.func.functional_call(
            model, dict(zip(names, parameters, strict=True)), (sample,)
        )
        return logits.flatten(0, 1)[:, :3].square().mean()

    small = [v.detach().requires_grad_(v.numel() < 130) for v in values]
    assert gradcheck(loss, small, fast_mode=True)


def test_a_state_dict_goes_round():
    first, second = (moved(Transformer(options("peri", qk_norm=True))) for _ in range(2))
    with torch.no_grad():
        second.output.weight.zero_()
    assert not torch.equal(first(text()), second(text()))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(text()), second(text()))


def test_windows_and_their_targets_are_the_text():
    task = PLAN.task(options(), 0, torch.device("cpu"))
    drawn = task.draw(3, 1)
    assert drawn.shape == (3, 10)
    whole = "".join(map(chr, split("manual")["train"].tolist()))
    assert all("".join(map(chr, row.tolist())) in whole for row in drawn)
    assert torch.equal(task.draw(3, 1), drawn)
    assert not torch.equal(task.draw(3, 2), drawn)
    logits = task.model(drawn[:, :-1])
    chosen = logits.log_softmax(-1).gather(-1, drawn[:, 1:, None])
    task.draw = lambda count, step: drawn
    assert task.loss(1).item() == pytest.approx(-chosen.mean().item(), rel=1e-5)


def test_few_characters_are_all_that_is_trained_on():
    task = PLAN.task(options(characters=50), 0, torch.device("cpu"))
    assert torch.equal(task.train, split("manual")["train"][:50])
    whole = "".join(map(chr, task.train.tolist()))
    assert all("".join(map(chr, row.tolist())) in whole for row in task.draw(40, 1))
    with pytest.raises(ValueError, match="context 60 is longer than the training"):
        PLAN.task(options(characters=50, context=60), 0, torch.device("cpu"))


def test_what_is_looked_at_in_a_model():
    torch.manual_seed(0)
    model = Transformer(options("dyt/much")).eval()
    sample = text(4, 10)
    seen = tasks.looked_at(model, sample)
    attention, x = model.branches[0], model.embed(sample[:, :-1])
    with torch.no_grad():
        *stream, _ = model.stream(sample[:, :-1])
        shares = [(y.mean(-1) ** 2 / (y**2).mean(-1)).mean() for y in stream]
        assert seen["mean_share"] == pytest.approx(float(sum(shares)) / 4, rel=1e-5)
        logits = attention.f.logits(attention.input(x))
        assert seen["largest_logit"] >= float(logits.max()) > 0
        stream = list(model.stream(sample[:, :-1]))
        assert seen["stream"] == pytest.approx(float(stream[-1].var() / stream[0].var()), rel=1e-5)
        for branch in model.branches:
            branch.norm.alpha.fill_(1e3)
    assert seen["saturated"] < 0.3
    assert tasks.looked_at(model, sample)["saturated"] > 0.99
    edges = {tasks.DynamicTanh: math.atanh(0.9**0.5), tasks.DynamicErf: math.log(10) ** 0.5}
    for kind, edge in edges.items():
        module = kind(4, alpha=2.0)
        beyond = torch.tensor([[[0.0, 0.99, 1.01, -1.01]]]) * edge / 2
        assert tasks.flat(module, beyond) == 0.5


def test_the_schedule_warms_up_and_falls_to_a_tenth():
    shares = [schedule(step, 100, 0.1) for step in range(1, 101)]
    assert shares[0] == pytest.approx(0.1, rel=1e-2)
    assert max(shares) == shares[9] == pytest.approx(0.978, abs=1e-3)
    assert shares[-1] == pytest.approx(0.1)
    assert all(one > two for one, two in pairwise(shares[9:]))
    assert schedule(1, 100, 0.0) > 0.999


def test_muon_moves_along_the_orthogonal_part():
    torch.manual_seed(0)
    for shape in ((6, 9), (9, 6)):
        g = torch.randn(shape, dtype=torch.float64)
        u, s, vh = torch.linalg.svd(g, full_matrices=False)
        s = s / s.norm()
        for a, b, c in tasks.NEWTON_SCHULZ:
            s = a * s + b * s**3 + c * s**5
        torch.testing.assert_close(orthogonal(g), u @ torch.diag(s) @ vh, rtol=1e-5, atol=1e-5)
        assert s.min() > 0.6
        assert s.max() < 1.3
    p, q = (nn.Parameter(torch.ones(3, 5)) for _ in range(2))
    groups = [{"params": [p], "muon": True}, {"params": [q], "muon": False}]
    muon = Muon(groups, lr=0.1, betas=(0.9, 0.95), weight_decay=0.5)
    twin = nn.Parameter(torch.ones(3, 5))
    adamw = torch.optim.AdamW([twin], lr=0.1, betas=(0.9, 0.95), weight_decay=0.5)
    expected, momentum = torch.ones(3, 5), torch.zeros(3, 5)
    for _ in range(3):
        g = torch.randn(3, 5)
        for parameter in (p, q, twin):
            parameter.grad = g.clone()
        muon.step()
        adamw.step()
        momentum = 0.95 * momentum + g
        step = 0.2 * math.sqrt(5) * orthogonal(g + 0.95 * momentum)
        expected = (1 - 0.1 * 0.5) * expected - 0.1 * step
    torch.testing.assert_close(p.detach(), expected)
    torch.testing.assert_close(q, twin)


def test_each_parameter_has_its_optimizer():
    config = PLAN.config("book", "layer", 0, **SMALL, optimizer="muon")
    trainer = Scheduled(PLAN, config, torch.device("cpu"))
    inner, others, vectors = trainer.optimizer.param_groups
    assert [inner["muon"], others["muon"], vectors["muon"]] == [True, False, False]
    assert {p.dim() for p in inner["params"]} == {p.dim() for p in others["params"]} == {2}
    assert {id(p) for p in others["params"]} == {
        id(layer.weight) for layer in (trainer.model.embedding, trainer.model.position,
                                       trainer.model.output)}  # fmt: skip
    assert vectors["weight_decay"] == 0 < inner["weight_decay"] == others["weight_decay"]
    counted = sum(len(group["params"]) for group in (inner, others, vectors))
    assert counted == len(trainer.parameters)
    trainer.update(1)
    share = schedule(1, config.options.updates, 0.1)
    assert inner["lr"] == pytest.approx(share * config.options.learning_rate)
    assert isinstance(trainer, Trainer)


@pytest.mark.parametrize("profile", ["standard", "data", "optimizer", "paper"])
def test_every_arm_trains(profile):
    few = {**SMALL, "updates": 3, "evaluations": 3, "text": "manual", "examples": 4}
    for arm in PLAN.profile(profile).arms:
        final = train(PLAN.config(profile, arm, 0, **few), device="cpu", save=False).result["final"]
        assert all(map(math.isfinite, final.values())), arm


@pytest.mark.parametrize("arm", ["layer", "rescaled", "dyt/much"])
def test_an_arm_learns_windows_by_heart_and_no_others(arm):
    few = {**PLAN.by_heart(arm), "examples": 4, "batch_size": 4, "depth": 1, "context": 16,
           "held_out": 20, "updates": 150}  # fmt: skip
    result = train(PLAN.config("book", arm, 0, **few), device="cpu", save=False).result
    assert result["curves"]["train_error"]["value"][0] > 80
    assert result["final"]["train_error"] < 10
    assert result["final"]["validation_error"] > 50


def test_each_profile_has_families_of_its_own():
    for name, claims in (("standard", 7), ("data", 5), ("optimizer", 4)):
        plan, profile = PLAN.compared(name), PLAN.profile(name)
        assert {arm for row in plan.rows for arm in row.arms} <= set(profile.arms)
        assert len(plan.claims()) == claims
        assert plan.primary_arms() <= set(profile.arms)
        assert plan.profile == name
    gap = PLAN.compared("optimizer").rows[0].contrast
    assert {arm: weight for weight, arm, _ in gap} == {
        "rms/muon": 1, "derf/muon": -1, "rms/adamw": -1, "derf/adamw": 1}  # fmt: skip
