"""Run as a program, without the import hook that no graph capture can see through: compile the
recurrent layers on the kernels, compare with the uncaptured, and print {case: "ok" or what went
wrong}."""

import json
import os
import sys

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import layernorm
from layernorm.recurrent import gpu, layers

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LAYERS = {"lstm": layernorm.LayerNormLSTM, "gru": layernorm.LayerNormGRU}


def compiled(kind: str) -> None:
    torch.manual_seed(0)
    module = LAYERS[kind](2, 3, backend="fused").to(DEVICE)
    captured = torch.compile(module, fullgraph=True, backend="aot_eager")
    for batch in (2, 3):  # the second size makes the batch dimension symbolic
        x = torch.randn(2, batch, 2, device=DEVICE, requires_grad=True)
        found = []
        for call in (captured, module):
            y = call(x)[0]
            found.append([y, *torch.autograd.grad(y.square().sum(), [x, *module.parameters()])])
        for got, expected in zip(*found, strict=True):
            torch.testing.assert_close(got, expected)


def auto(_: str) -> None:
    """Without records the definition; the question itself does not break the graph."""
    module = layernorm.LayerNormGRU(2, 3).to(DEVICE)
    x = torch.randn(2, 2, 2, device=DEVICE)
    torch.testing.assert_close(
        torch.compile(module, fullgraph=True, backend="aot_eager")(x)[0], module(x)[0]
    )
    torch.cuda.get_device_name = lambda device: "a GPU without records"

    def asked(x: torch.Tensor) -> torch.Tensor:
        return x + gpu._faster("gru", "cuda:0", x.dtype, None, 3, torch.is_grad_enabled())

    assert torch.equal(torch.compile(asked, fullgraph=True, backend="aot_eager")(x), x)


def main() -> None:
    if DEVICE == "cpu":
        layers.cpu = gpu  # which the layers ask on a GPU
    outcome = {}
    for case, job in (("lstm", compiled), ("gru", compiled), ("auto", auto)):
        try:
            torch._dynamo.reset()
            job(case)
            outcome[case] = "ok"
        except Exception as error:
            outcome[case] = f"{type(error).__name__}: {error}"[:1000]
    json.dump(outcome, sys.stdout)


if __name__ == "__main__":
    main()
