# ruff: noqa: E501  (a table, one line per case)
"""Plausible slips in the GRU's variants and in zoneout, each caught by a test that real code passes.

As test_slips.py, for modules that stand beside that chain: the changed module's classes take the
place of the real ones in the tests' files."""

import inspect
import sys
import types

import pytest
from recurrent import test_gru_variants as variants
from recurrent import test_zoneout as zones
from recurrent.test_slips import Slip, first_to_fail

import layernorm.recurrent
from layernorm.recurrent import gru_variants, zoneout

G, Z = gru_variants, zoneout


SLIPS = [
    Slip(G, "per_gate: reset on both terms", "norm(n_x + r * n_h, 2)", "norm(r * (n_x + n_h), 2)"),
    Slip(G, "per_gate: reset behind the norm", "norm(n_x + r * n_h, 2)", "r * norm(n_x + n_h, 2)"),
    Slip(G, "per_gate: one norm's gains for all", "gains[k], biases[k], eps) + b[k]", "gains[0], biases[k], eps) + b[k]"),
    Slip(G, "per_gate: one norm for r and z", "torch.sigmoid(norm(z_h + z_x, 1))", "torch.sigmoid(functional.layer_norm(torch.cat([r_h + r_x, z_h + z_x], -1), (2 * h.shape[-1],), None, None, eps)[..., h.shape[-1] :] * gains[1] + biases[1] + b[1])"),
    Slip(G, "per_gate: b forgotten", "biases[k], eps) + b[k]", "biases[k], eps) + 0 * b[k]"),
    Slip(G, "per_gate: z passes the new state", "n = torch.tanh(norm(n_x + r * n_h, 2))\n    return (1 - z) * n + z * h", "n = torch.tanh(norm(n_x + r * n_h, 2))\n    return z * n + (1 - z) * h"),
    Slip(G, "joint: reset on the recurrent term alone", "torch.sigmoid(r + b_r) * n)", "n - (1 - torch.sigmoid(r + b_r)) * (h @ w.w_hh.T).chunk(3, -1)[2])"),
    Slip(G, "joint: one norm for each term", "functional.layer_norm(h @ w.w_hh.T + x @ w.w_ih.T, w.w_hh.shape[:1], *w.ln_hh, eps)", "functional.layer_norm(h @ w.w_hh.T, w.w_hh.shape[:1], *w.ln_hh, eps) + functional.layer_norm(x @ w.w_ih.T, w.w_hh.shape[:1], None, None, eps)"),
    Slip(G, "stacked: reset on both terms", "n_x + torch.sigmoid(r_h + r_x) * n_h", "torch.sigmoid(r_h + r_x) * (n_x + n_h)"),
    Slip(G, "eps of the constructor ignored", "*states, weights, self.eps,", "*states, weights, 1e-5,"),
    Slip(G, "the update bias on the reset gate", "parameter[self.hidden_size : 2 * self.hidden_size]", "parameter[: self.hidden_size]"),
    Slip(Z, "old and new swapped", "torch.lerp(n.to(s.dtype), s, k)", "torch.lerp(s, n.to(s.dtype), k)"),
    Slip(Z, "the new h of a cell that is zoned out", "new = step(x, *states)", "new = step(x, *states)\n        new = step(x, states[0], torch.lerp(new[1], states[1], shares[1]))[:1] + new[1:] if len(new) == 2 else new"),
    Slip(Z, "random in evaluation", "if not self.training:", "if False:"),
    Slip(Z, "expected in training", "if not self.training:", "if True:"),
    Slip(Z, "kept with the other probability", "s.shape[1]), z)", "s.shape[1]), 1 - z)"),
    Slip(Z, "one mask for all steps", "torch.bernoulli(s.new_full((rows, s.shape[1]), z))", "torch.bernoulli(s.new_full((1, s.shape[1]), z)).expand(rows, -1)"),
    Slip(Z, "one draw for all units of a row", "torch.bernoulli(s.new_full((rows, s.shape[1]), z))", "torch.bernoulli(s.new_full((rows, 1), z)).expand(rows, s.shape[1])"),
    Slip(Z, "kept units scaled up as by dropout", "s, k)", "s, k) / (1 - k if isinstance(k, float) else 1)"),
    Slip(Z, "no gradient through what is kept", "torch.lerp(n.to(s.dtype), s, k)", "torch.lerp(n.to(s.dtype), s.detach(), k)"),
    Slip(Z, "h's probability for the cell", "shares = [getattr(self, name) for name in self._zones]", "shares = [self.zoneout for name in self._zones]"),
    Slip(Z, "always read forwards", "batch_sizes, states, reverse)\n\n    def _printed", "batch_sizes, states, False)\n\n    def _printed"),
    Slip(Z, "the variant ignored", "VARIANTS[self.variant]", 'VARIANTS["per_gate"]'),
    Slip(Z, "eps of the constructor ignored", "weights, self.eps)\n\n\nclass ZoneoutGRU(", "weights, 1e-5)\n\n\nclass ZoneoutGRU("),
    Slip(Z, "eps of the constructor ignored", "w.ln_hh, self.eps)", "w.ln_hh, 1e-5)"),
    Slip(Z, "b forgotten", "b = definition._or_zeros(w.b, w.w_ih)", "b = definition._or_zeros(None, w.w_ih)"),
]  # fmt: skip


def checks(module):
    """Checks of one module, by name, the quickest first."""
    if module is G:
        values = variants.test_values_and_gradients_are_the_independent_nets
        for variant in G.VARIANTS:
            yield variant, lambda v=variant: values(v, 2, True, True)
        yield "starts", variants.test_the_parameters_and_where_they_start
        return
    evaluation = zones.test_evaluation_is_the_expectation
    training = zones.test_training_keeps_units_at_random
    for number, (kind, options) in enumerate(zones.KINDS):
        given = getattr(zones, kind.__name__), options  # perhaps the changed one
        for layers in (1, 2):
            yield f"evaluation {number}", lambda g=given, n=layers: evaluation(*g, n, True)
        yield f"training {number}", lambda g=given: training(*g)
    yield "sequences", zones.test_whole_sequences_in_training_draw_anew_at_every_step
    yield "gradients", lambda: zones.test_gradients_in_training(zones.ZoneoutGRU, {"zoneout": 0.5})


@pytest.mark.parametrize("slip", SLIPS, ids=lambda s: f"{s.module.__name__[20:]}: {s.name}")
def test_a_check_notices(slip, monkeypatch):
    source, name = inspect.getsource(slip.module), slip.module.__name__
    assert slip.old in source, f"{slip.old!r} no longer stands in {name}"
    changed = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, changed)
    monkeypatch.setattr(layernorm.recurrent, name.rpartition(".")[2], changed)
    exec(compile(source.replace(slip.old, slip.new), f"slip in {name}", "exec"), vars(changed))
    for tests in (variants, zones):
        for thing in vars(tests).keys() & vars(changed).keys():
            if thing.startswith(("LayerNormGRUV", "Zone")):
                monkeypatch.setattr(tests, thing, vars(changed)[thing])
    renamed = {kind.__name__: kind for kind in vars(changed).values() if inspect.isclass(kind)}
    for table in ("STEPS", "PLAIN"):
        old = getattr(zones, table)
        new = {renamed.get(kind.__name__, kind): value for kind, value in old.items()}
        monkeypatch.setattr(zones, table, old | new)
    catcher = first_to_fail(checks(slip.module))
    assert catcher is not None, f"nothing notices: {slip.name}"
    print(f"{slip.name}: caught by {catcher}")


@pytest.mark.parametrize("module", [G, Z], ids=["gru_variants", "zoneout"])
def test_the_unchanged_source_is_not_caught(module):
    assert first_to_fail(checks(module)) is None
