# ruff: noqa: E501  (a table, one line per case)
"""Sources that cannot be converted are refused by the name of what is wrong with them."""

import re
from functools import partial

import numpy as np
import pytest
import torch
from library.oracle import draw
from recurrent.other_libraries import (
    ADDONS,
    DREAMER,
    GRU,
    HASTE,
    HASTE_GRU,
    LSTM,
    X,
    example_cell,
    prefixed,
    pydreamers_cell,
)
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import weight_norm

from layernorm.recurrent import convert


class Doubled(nn.LSTM):
    def forward(self, input, hx=None):
        return super().forward(2 * input, hx)


BROKEN = [
    (convert.from_keras, ADDONS[:7], {}, ValueError, "must be the 9 arrays.*got 7"),
    (convert.from_keras, [ADDONS[2], *ADDONS[1:]], {}, ValueError, r"kernel must have shape \(I, 4H\), got \(20,\)"),
    (convert.from_keras, [*ADDONS[:8], draw(4)], {}, ValueError, r"state_norm beta must have shape \(H\) with H = 5, got \(4,\)"),
    (convert.from_keras, ADDONS, {"variant": "paper"}, TypeError, "options must be among .*got variant"),
    (convert.from_theano, {}, {}, ValueError, "lnlstm layer; missing: W.*got none"),
    (convert.from_theano, LSTM, {"prefix": "encoder"}, ValueError, "missing: encoder_W"),
    (convert.from_theano, {"Ux": X, **LSTM}, {}, ValueError, "lngru layer; missing: Wx"),
    (convert.from_theano, LSTM | {"s3": draw(4)}, {}, ValueError, r"s3 must have shape \(H\) with H = 5, got \(4,\)"),
    (convert.from_torch, nn.LSTMCell(2, 3), {}, TypeError, "the state dict of one, got LSTMCell; for a cell"),
    (convert.from_torch, nn.Sequential(nn.GRU(2, 3), nn.Sequential(nn.RNN(3, 3))), {}, TypeError, r"got Sequential; it contains 0, 1\.0: convert source\.get_submodule\('0'\)$"),
    (convert.from_torch, weight_norm(nn.LSTM(2, 3), "weight_hh_l0"), {}, TypeError, "remove_parametrizations"),
    (convert.from_torch, prune.l1_unstructured(nn.LSTM(2, 3), "weight_hh_l0", 0.5), {}, TypeError, "weight_hh_l0_orig in place of a weight .*prune.remove"),
    (convert.from_theano, LSTM | {"W": np.array([["a"]])}, {}, TypeError, "W must be an array of numbers: "),
    (convert.from_torch, nn.GRU(2, 3), {"variant": "joint"}, ValueError, '"paper" or "stacked" for a torch.nn.GRU, got \'joint\': .*the reset gate multiplies the input'),
    (convert.from_torch, nn.GRU(2, 3), {"variant": "per_gate"}, ValueError, "no place for b_hn"),
    (convert.from_torch, nn.GRU(2, 3).state_dict(), {"variant": "carried"}, ValueError, '"paper" or "stacked" for a torch.nn.GRU, got \'carried\'$'),
    (convert.from_torch, nn.RNN(2, 3), {"variant": "joint"}, ValueError, 'must be "paper" for a torch.nn.RNN, got'),
    (convert.from_torch, nn.LSTM(2, 3), {"variant": "stacked"}, ValueError, "variant must be one of paper"),
    (convert.from_torch, Doubled(2, 3), {}, TypeError, "but Doubled has a forward of its own"),
    (convert.from_torch, [X], {}, TypeError, "source must be a torch.nn.LSTM, .*got list"),
    (convert.from_torch, nn.LSTM(2, 3), {"batch_first": True}, TypeError, "options must be among eps, backend, learn_initial_state, got batch_first"),
    (convert.from_torch, nn.LSTM(2, 3).state_dict(), {"bias": False}, TypeError, "backend, learn_initial_state, batch_first, dropout, got bias"),
    (convert.from_torch, nn.LSTM(2, 3).state_dict(), {"nonlinearity": "relu"}, TypeError, "got nonlinearity"),
    (convert.from_torch, {}, {}, ValueError, "missing: weight_hh_l0, weight_ih_l0; without their like: none"),
    (convert.from_torch, prefixed(nn.LSTM(2, 3).state_dict(), "encoder."), {}, ValueError, "key encoder.weight_ih_l0: .*without a prefix"),
    (convert.from_torch, nn.LSTMCell(2, 3).state_dict(), {}, ValueError, "key weight_ih: .*of one torch.nn.LSTM"),
    (convert.from_torch, nn.LSTM(2, 3, bias=False).state_dict() | {"weight_hr_l1": X}, {}, ValueError, "missing: weight_hh_l1, weight_ih_l1; without their like: weight_hr_l1"),
    (convert.from_torch, nn.LSTM(2, 3, bias=False).state_dict() | {"weight_hh_l0": draw(6, 3)}, {}, ValueError, r"weight_hh_l0 must have shape \(4H, H\), .*got \(6, 3\)"),
    (convert.from_torch, nn.LSTM(2, 3), {"forget_bias": 1.0}, TypeError, "options must be among eps, backend, learn_initial_state, got forget_bias"),
    (convert.from_haste, {"kernel": X}, {}, ValueError, "keys of haste's LayerNormLSTM.*got kernel"),
    (convert.from_haste, HASTE | {"recurrent_bias": X}, {}, ValueError, "keys of haste's LayerNormGRU, bias, gamma, kernel.*beta_h"),
    (convert.from_haste, HASTE_GRU | {"bias": draw(12)}, {}, ValueError, r"^bias must have shape \(3H\) with H = 5, got \(12,\)"),
    (partial(convert.from_dreamer, scale=DREAMER[1], bias=DREAMER[2]), draw(8, 16), {}, ValueError, r"kernel must have shape \(H\+I, 3H\), got \(8, 16\)"),
    (partial(convert.from_dreamer, scale=DREAMER[1], bias=DREAMER[2]), draw(5, 15), {}, ValueError, r"kernel must have shape.*got \(5, 15\)"),
    (partial(convert.from_dreamer, scale=DREAMER[1], bias=draw(5)), DREAMER[0], {}, ValueError, r"bias must have shape \(3H\) with H = 5, got \(5,\)"),
    (partial(convert.from_dreamer, scale=DREAMER[1], bias=DREAMER[2]), DREAMER[0], {"variant": "joint"}, TypeError, "options must be among .*got variant"),
    (convert.from_pydreamer, {}, {}, ValueError, "keys of pydreamer's cells, ln_newval.*got none"),
    (convert.from_pydreamer, pydreamers_cell(True, 3, 1) | {"bias": X}, {}, ValueError, "cells, lnorm.bias, .*got bias, lnorm.bias"),
    (convert.from_pydreamer, {f"layers.1.{k}": v for k, v in pydreamers_cell(True, 3, 1).items()}, {}, ValueError, "cells, ln_newval"),
    (convert.from_pydreamer, pydreamers_cell(True, 3, 1) | {"lnorm.bias": draw(12)}, {}, ValueError, r"lnorm.bias must have shape \(3H\) with H = 5, got \(12,\)"),
    (convert.from_pydreamer, pydreamers_cell(True, 3, 1), {"eps2": 1}, TypeError, "options must be among"),
    (convert.from_haste, HASTE | {"bias": draw(16)}, {}, ValueError, r"^bias must have shape \(4H\) with H = 5, got \(16,\)"),
    (convert.from_haste, HASTE, {"eps": 0.1}, TypeError, "options must be among batch_first, .*got eps"),
    (convert.from_torchscript, {}, {"bias": True}, TypeError, "options must be among .*got bias"),
    (convert.from_haste, [X], {}, TypeError, "a module or its state dict, got list"),
    (convert.from_torchscript, {"cell.bias_ih": X}, {}, ValueError, "has the key cell.bias_ih"),
    (convert.from_torchscript, {}, {}, ValueError, "must have weight_ih and weight_hh, got none"),
    (
        convert.from_torchscript,
        {k: v for k, v in example_cell(3, 5, seed=1).items() if "_c" not in k},
        {}, ValueError, "lacks what becomes ln_c_bias_l0, ln_c_weight_l0",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("function", "source", "options", "error", "message"), BROKEN)
def test_other_sources_are_refused(function, source, options, error, message):
    with pytest.raises(error, match=message):
        function(source, **options)


def of_keras(source, **options):
    return convert.from_keras(list(source.values()), **options)


def of_dreamer(source):
    return convert.from_dreamer(*source.values())


STACK = {
    f"layers.{k}.directions.{d}.cell.{name}": value
    for k, d in ((0, 0), (0, 1), (1, 0), (1, 1))
    for name, value in example_cell(10 if k else 3, 5, seed=20 * k + 40 * d).items()
}
KERAS = (
    *("kernel", "recurrent_kernel", "bias", "kernel_norm gamma", "kernel_norm beta"),
    *("recurrent_norm gamma", "recurrent_norm beta", "state_norm gamma", "state_norm beta"),
)
SOURCES = {
    "torch lstm": (
        convert.from_torch,
        nn.LSTM(3, 5, 2, proj_size=2, bidirectional=True, dtype=torch.float64).state_dict(),
    ),
    "torch gru": (convert.from_torch, nn.GRU(3, 5, dtype=torch.float64).state_dict()),
    "haste lstm": (convert.from_haste, HASTE),
    "haste gru": (convert.from_haste, HASTE_GRU),
    "keras": (of_keras, dict(zip(KERAS, ADDONS, strict=True))),
    "dreamer": (of_dreamer, dict(zip(("kernel", "scale", "bias"), DREAMER, strict=True))),
    "pydreamer": (
        convert.from_pydreamer,
        prefixed(pydreamers_cell(False, 3, 1), "layers.0.")
        | prefixed(pydreamers_cell(False, 5, 1), "layers.1."),
    ),
    "theano lstm": (convert.from_theano, LSTM),
    "theano gru": (convert.from_theano, GRU),
    "torchscript": (convert.from_torchscript, STACK),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_each_array_is_checked_and_named(kind):
    function, source = SOURCES[kind]
    function(source)
    for name, value in source.items():
        shorter = value[tuple(slice(-1) for _ in value.shape)]
        for other in (shorter, value[:0], value[..., None], value[0]):
            with pytest.raises(ValueError, match=f"^{re.escape(name)} must have shape"):
                function(source | {name: other})
        for other, told in ((value.long(), "got torch.int64"), (value.bool(), "got torch.bool")):
            with pytest.raises(ValueError, match=re.escape(f"{name} must hold")) as refused:
                function(source | {name: other})
            assert told in str(refused.value)
