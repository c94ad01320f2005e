"""What the steps need is compiled ahead: each kernel once, by processes that share them."""

import sys
import time

from lab.benchmarks.benching import GPU

from layernorm.lab.gpu import ahead
from layernorm.lab.gpu.steps import SOON, STEPS


def test_each_kernel_is_wanted_once():
    plan = STEPS["large"](GPU)
    found = ahead.wanted(plan)
    assert {name for _, name in found} <= ahead.COMPILED
    places = [(c.operation, n, c.dtype, c.shape[1:], c.mode) for c, n in found]
    assert len(set(places)) == len(places)
    assert {place[3] for place in places} == {c.shape[1:] for c in plan}  # of any number of rows
    both = ahead.wanted([*plan, *STEPS["layer"](GPU), *STEPS["replayed"](GPU)])
    assert len(both) == len(found)
    assert set(SOON) <= set(STEPS)


def test_recurrent_layers_are_told_by_all_their_sizes():
    found = ahead.wanted(STEPS["recurrent"](GPU))
    assert {name for _, name in found} == {"fused", "persistent"}
    assert len({case.shape for case, _ in found}) == 2


def test_processes_share_them_and_what_takes_too_long_is_ended(monkeypatch):
    monkeypatch.setattr(ahead.os, "cpu_count", lambda: 3)
    told = []
    say = (sys.executable, "-c", "import sys; print(*sys.argv[1:])")
    ahead.carry_out(["layer"], "cuda", time.monotonic() + 60, told.append, say)
    assert sorted(told[:2]) == ["0 2 cuda layer", "1 2 cuda layer"]
    assert told[2].startswith("compiled ahead by 2 processes in ")
    slow = (sys.executable, "-c", "import time; time.sleep(600)")
    began = time.monotonic()
    ahead.carry_out(["layer"], "cuda", began + 0.2, told.append, slow)
    assert time.monotonic() - began < 60
