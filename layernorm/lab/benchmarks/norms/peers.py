"""Other people's kernels for the same operations, each through its public functions.

None is required: what is installed is found when a measurement begins. Written against Liger-Kernel
0.6 to 0.8 (`liger_kernel.transformers.functional`), apex (`apex.normalization.fused_layer_norm`,
2025), Transformer Engine 2 (`transformer_engine.pytorch.LayerNorm`, `RMSNorm`), QuACK 0.2 to 0.6
(`quack.rmsnorm`; versions without `layernorm_bwd` give layer normalization forward alone),
flash-attn 2.8 (`flash_attn.ops.triton.layer_norm`) and cuDNN's frontend 1.8 (`cudnn`).
Another version may have other signatures; then the row says what it raised, as it does where a
gradient is asked for that a library does not have.

A peer is given the rows as a matrix, gain and bias as vectors, and the eps that torch uses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor

from layernorm.lab.benchmarks.norms.operations import Function, groups

EPS = 1e-5  # of torch's layer, group and instance normalization
RMS_EPS = torch.finfo(torch.float32).eps  # of its RMS normalization, in half precision too


@dataclass(frozen=True)
class MadeAnew:
    """An implementation that is made for each case, by `make`, which may raise."""

    make: Callable[[], Function]


@dataclass(frozen=True)
class Peer:
    """Another library: where it is imported from, and what it has.

    `operations` maps the name of an operation to a function of the imported module that gives the
    implementation, a function of the operation's inputs by name.
    """

    name: str
    module: str
    operations: dict[str, Callable[[ModuleType], Function]]

    def installed(self) -> bool:
        try:
            return find_spec(self.module.partition(".")[0]) is not None
        except ValueError:  # imported by hand, without a specification
            return True

    def implementation(self, operation: str) -> MadeAnew:
        """The implementation of an operation; it raises whatever the library's import raises."""
        return MadeAnew(lambda: self.operations[operation](import_module(self.module)))


def _rows(norm: Callable[..., Tensor]) -> Function:
    """An implementation on tensors of any shape, from a norm of matrices over their rows."""

    def implementation(x: Tensor, weight: Tensor, **others: Tensor) -> Tensor:
        vectors = {name: tensor.flatten() for name, tensor in others.items()}
        return norm(x.flatten(1), weight.flatten(), **vectors).view(x.shape)

    return implementation


def _added(norm: Callable[..., tuple[Tensor, Tensor]]) -> Function:
    """The same for the norm of a sum, which gives the sum as well."""

    def implementation(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor):
        y, total = norm(x.flatten(1), residual.flatten(1), weight.flatten(), bias.flatten())
        return y.view(x.shape), total.view(x.shape)

    return implementation


def _liger_group(module: ModuleType) -> Function:
    def implementation(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        spread = x.view(*x.shape, 1) if x.dim() == 2 else x
        done = module.liger_group_norm(spread, weight, bias, x.shape[1], groups(x), EPS)
        return done.view(x.shape)

    return implementation


def _engine(module: ModuleType, kind: str, eps: float) -> Function:
    """Transformer Engine has modules: one is made for each width and type, and is given our gain
    and bias."""
    modules: dict[tuple, torch.nn.Module] = {}

    def norm(x: Tensor, weight: Tensor, **others: Tensor) -> Tensor:
        key = (x.shape[-1], x.dtype, x.device)
        if key not in modules:
            modules[key] = getattr(module, kind)(key[0], eps=eps, dtype=key[1], device=key[2])
        given = {"weight": weight, **others}
        return torch.func.functional_call(modules[key], given, (x,))

    return _rows(norm)


def _quack_layer(module: ModuleType) -> Function:
    """QuACK wants gain and bias in float32; they are converted once, outside of the time."""
    converted: dict[int, tuple[Tensor, Tensor]] = {}

    def once(tensor: Tensor) -> Tensor:
        if id(tensor) not in converted:
            converted[id(tensor)] = tensor, tensor.detach().float().flatten()
        return converted[id(tensor)][1]

    class Norm(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor, *vectors: Tensor) -> Tensor:
            if not any(ctx.needs_input_grad):
                return module.layernorm_fwd(x, *vectors, eps=EPS)
            y, rstd, mean = module.layernorm_fwd(
                x, *vectors, eps=EPS, return_rstd=True, return_mean=True
            )
            ctx.save_for_backward(x, vectors[0], rstd, mean)
            return y

        @staticmethod
        def backward(ctx, dy: Tensor) -> tuple:
            x, gain, rstd, mean = ctx.saved_tensors
            dx, *sums = module.layernorm_bwd(x, gain, dy.contiguous(), rstd, mean)
            return dx, *(total.to(x.dtype) for total in sums), None, None

    return _rows(lambda x, weight, bias: Norm.apply(x, weight, bias, once(weight), once(bias)))


def _cudnn(module: ModuleType, kind: str) -> Function:
    """cuDNN's own norm, `layernorm` or `rmsnorm`: graphs of its frontend, built for each shape and
    type; without a gradient to come, the one that keeps no statistics."""
    handle, plans = module.create_handle(), {}
    full = module.data_type.FLOAT
    kinds = {
        torch.float32: full,
        torch.float16: module.data_type.HALF,
        torch.bfloat16: module.data_type.BFLOAT16,
    }
    number = torch.full((1, 1, 1, 1), EPS if kind == "layernorm" else RMS_EPS)
    moments = ("mean", "inverse") if kind == "layernorm" else ("inverse",)
    phase = module.norm_forward_phase

    def planned(x: Tensor, name: str, given: tuple[str, ...]):
        """A graph of this name, what it is given and what it gives by name, and its room."""
        graph = module.pygraph(
            io_data_type=kinds[x.dtype], intermediate_data_type=full, compute_data_type=full,
            handle=handle,
        )  # fmt: skip
        sizes = {"x": x.shape, "dy": x.shape, "eps": (1, 1)}
        sizes |= dict.fromkeys(("weight", "bias"), (1, x.shape[1]))
        sizes |= dict.fromkeys(moments, (x.shape[0], 1))
        tensors = {
            each: graph.tensor(
                name=each, dim=[*sizes[each], 1, 1],
                stride=[sizes[each][1], 1, sizes[each][1], sizes[each][1]],
                is_pass_by_value=each == "eps",
                data_type=full if each in ("eps", *moments) else kinds[x.dtype],
            )
            for each in given
        }  # fmt: skip
        said = {"input": tensors["x"], "scale": tensors["weight"], "name": name}
        if name == "backward":
            said |= {"grad": tensors["dy"], "inv_variance": tensors["inverse"]}
            said |= {"mean": tensors["mean"]} if "mean" in moments else {"has_dbias": False}
            made = getattr(graph, f"{kind}_backward")(**said)
            names = ("dx", "dweight", "dbias") if "mean" in moments else ("dx", "dweight")
        else:
            said |= {"bias": tensors.get("bias"), "epsilon": tensors["eps"]}
            made = getattr(graph, kind)(norm_forward_phase=getattr(phase, name), **said)
            names = ("y", *moments) if name == "TRAINING" else ("y",)
        outputs = dict(zip(names, made, strict=False))
        for each, output in outputs.items():
            output.set_output(True).set_data_type(full if each in moments else kinds[x.dtype])
        graph.build([module.heur_mode.A, module.heur_mode.FALLBACK])
        room = torch.empty(graph.get_workspace_size(), device=x.device, dtype=torch.uint8)
        return graph, tensors, outputs, room

    def run(name: str, **given: Tensor) -> list[Tensor]:
        x = given["x"]
        if (key := (name, x.shape, x.dtype, x.device)) not in plans:
            plans[key] = planned(x, name, tuple(given))
        graph, tensors, outputs, room = plans[key]
        made = {
            each: x.new_empty(len(x), 1, dtype=torch.float32)
            if each in moments
            else torch.empty_like(x if each in ("y", "dx") else given["weight"])
            for each in outputs
        }
        module.set_stream(handle=handle, stream=torch.cuda.current_stream(x.device).cuda_stream)
        values = {tensors[each]: value for each, value in given.items()}
        values |= {outputs[each]: value for each, value in made.items()}
        graph.execute(values, room, handle=handle)
        return list(made.values())

    class Norm(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: Tensor, *vectors: Tensor) -> Tensor:
            given = {"x": x, **dict(zip(("weight", "bias"), vectors, strict=False)), "eps": number}
            if not any(ctx.needs_input_grad):
                return run("INFERENCE", **given)[0]
            y, *statistics = run("TRAINING", **given)
            ctx.save_for_backward(x, vectors[0], *statistics)
            return y

        @staticmethod
        def backward(ctx, dy: Tensor) -> tuple:
            x, weight, *statistics = ctx.saved_tensors
            given = dict(zip(moments, statistics, strict=True))
            return tuple(run("backward", x=x, weight=weight, dy=dy.contiguous(), **given))

    return _rows(lambda x, weight, **bias: Norm.apply(x, weight, *bias.values()))


PEERS = (
    Peer(
        "liger",
        "liger_kernel.transformers.functional",
        {
            "layer": lambda m: _rows(
                lambda x, weight, bias: m.liger_layer_norm(x, weight, bias, EPS)
            ),
            "rms": lambda m: _rows(
                lambda x, weight: m.liger_rms_norm(x, weight, RMS_EPS, in_place=False)
            ),
            "group": _liger_group,
        },
    ),
    Peer(
        "apex",
        "apex.normalization.fused_layer_norm",
        {
            "layer": lambda m: _rows(
                lambda x, weight, bias: m.fused_layer_norm_affine(
                    x, weight, bias, weight.shape, eps=EPS
                )
            ),
            "rms": lambda m: _rows(
                lambda x, weight: m.fused_rms_norm_affine(x, weight, weight.shape, eps=RMS_EPS)
            ),
        },
    ),
    Peer(
        "transformer_engine",
        "transformer_engine.pytorch",
        {
            "layer": lambda m: _engine(m, "LayerNorm", EPS),
            "rms": lambda m: _engine(m, "RMSNorm", RMS_EPS),
        },
    ),
    Peer(
        "quack",
        "quack.rmsnorm",
        {
            "rms": lambda m: _rows(lambda x, weight: m.rmsnorm(x, weight, eps=RMS_EPS)),
            "layer": _quack_layer,
        },
    ),
    Peer(
        "cudnn",
        "cudnn",
        {"layer": lambda m: _cudnn(m, "layernorm"), "rms": lambda m: _cudnn(m, "rmsnorm")},
    ),
    Peer(
        "flash_attn",
        "flash_attn.ops.triton.layer_norm",
        {
            "layer": lambda m: _rows(
                lambda x, weight, bias: m.layer_norm_fn(x, weight, bias, eps=EPS)
            ),
            "rms": lambda m: _rows(lambda x, weight: m.rms_norm_fn(x, weight, None, eps=RMS_EPS)),
            "residual": lambda m: _added(
                lambda x, residual, weight, bias: m.layer_norm_fn(
                    x, weight, bias, residual=residual, eps=EPS, prenorm=True
                )
            ),
        },
    ),
)
