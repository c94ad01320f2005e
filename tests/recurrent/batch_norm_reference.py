"""`BatchNormLSTM` as a loop over cases, steps and units in NumPy; layers and cases to try it."""

import numpy as np
import torch
from library.oracle import draw

import layernorm

LENGTHS = [6, 2, 4, 4, 1]
BATCHES = ([3, 2, 3], [7, 7, 7, 7], LENGTHS)
EPS = 0.01


def make(inputs=3, hidden=4, seed=0, **options) -> layernorm.BatchNormLSTM:
    """A layer in float64 with random gains and biases."""
    options = {"max_length": 8, "eps": EPS, "dtype": torch.float64} | options
    layer = layernorm.BatchNormLSTM(inputs, hidden, **options)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return layer


# An independent reference: one direction of one layer, a list of sequences (steps, inputs)


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def reference(layer, sequences, suffix, h0, c0, statistics):
    """Outputs of each sequence, last states, and the statistics found {term: [(n, mean, var)]}.

    `statistics` is None in training, else {term: [(mean, var) for each step]}.
    """
    p = {name: value.detach().numpy() for name, value in layer.named_parameters()}
    weights = [p[f"weight_{t}{suffix}"] for t in ("ih", "hh")]
    b = p.get(f"bias_ih{suffix}", 0.0)
    gain = {t: p[f"bn_{t}_weight{suffix}"] for t in ("ih", "hh", "c")}
    found = {t: [] for t in gain}

    def normalized(term, a, t, over=None):
        if statistics is not None:
            mean, var = statistics[term][min(t, len(statistics[term]) - 1)]
        else:
            values = a if over is None else over
            if len(values) >= layer.min_samples:
                mean = sum(values) / len(values)
                var = sum((v - mean) ** 2 for v in values) / len(values)
                found[term].append((len(values), mean, var))
            _, mean, var = found[term][-1]
        return [(v - mean) / np.sqrt(var + layer.eps) * gain[term] for v in a]

    h, c = [row.copy() for row in h0], [row.copy() for row in c0]
    outputs = [[] for _ in sequences]
    everything = [weights[0] @ x for s in sequences for x in s]
    for t in range(max(map(len, sequences))):
        going = [k for k, s in enumerate(sequences) if t < len(s)]
        a_x = [weights[0] @ sequences[k][t] for k in going]
        if layer.statistics == "per_step":
            a_x = normalized("ih", a_x, t)
        else:
            if t == 0 and statistics is None:
                normalized("ih", everything, 0)
            mean, var = found["ih"][0][1:] if statistics is None else statistics["ih"][0]
            a_x = [(v - mean) / np.sqrt(var + layer.eps) * gain["ih"] for v in a_x]
        a_h = normalized("hh", [weights[1] @ h[k] for k in going], t)
        gates = [np.split(x + y + b, 4) for x, y in zip(a_x, a_h, strict=True)]
        for k, (i, f, g, _) in zip(going, gates, strict=True):
            c[k] = sigmoid(f) * c[k] + sigmoid(i) * np.tanh(g)
        seen = normalized("c", [c[k] for k in going], t)
        for k, (*_, o), v in zip(going, gates, seen, strict=True):
            h[k] = sigmoid(o) * np.tanh(v + p[f"bn_c_bias{suffix}"])
            outputs[k].append(h[k])
    return [np.stack(o) for o in outputs], np.stack(h), np.stack(c), found


def reference_stack(layer, sequences, h0, c0):
    """All layers and directions of a layer, in its mode."""
    ends = ("", "_reverse") if layer.bidirectional else ("",)
    y, states, found = sequences, [], {}
    for k in range(layer.num_layers):
        sides = []
        for end in ends:
            suffix = f"_l{k}{end}"
            statistics = None
            if not layer.training:
                tracked = max(1, int((layer.num_batches_tracked > 0).sum()))
                statistics = {
                    term: [
                        (m.numpy(), v.numpy())
                        for m, v in zip(
                            getattr(layer, f"running_mean_{term}{suffix}")[:tracked],
                            getattr(layer, f"running_var_{term}{suffix}")[:tracked],
                            strict=True,
                        )
                    ]
                    for term in ("ih", "hh", "c")
                }
            seen = [s[::-1] for s in y] if end else y
            side, h, c, found[suffix] = reference(
                layer, seen, suffix, h0[len(states)], c0[len(states)], statistics
            )
            sides.append([s[::-1] for s in side] if end else side)
            states.append((h, c))
        y = [np.concatenate(both, -1) for both in zip(*sides, strict=True)]
    return y, np.stack([h for h, _ in states]), np.stack([c for _, c in states]), found


def draws(layer, lengths=LENGTHS, seed=1):
    """Sequences, and initial states of every layer and direction."""
    sequences = [draw(n, layer.input_size, seed=seed + k) for k, n in enumerate(lengths)]
    rows = layer.num_layers * (2 if layer.bidirectional else 1)
    shape = (rows, len(lengths), layer.hidden_size)
    return sequences, (draw(*shape, seed=50), draw(*shape, seed=51))


OPTIONS = [
    {},
    {"bias": False},
    {"num_layers": 2, "bidirectional": True},
    {"statistics": "sequence"},
    {"statistics": "sequence", "bidirectional": True},
    {"min_samples": 3},
]
