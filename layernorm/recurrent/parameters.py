"""Shared by cells and layers: the parameters of each kind of recurrent net, and how they start."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from layernorm import _validation_modules
from layernorm.recurrent import checks
from layernorm.recurrent.definition import GRUWeights, LSTMWeights, RNNWeights
from layernorm.recurrent.variants import named_variant


class Parameters(nn.Module):
    """Sets of parameters, one for each layer and direction, told apart by the names' suffixes.

    Weights start as torch's, uniform between -1/sqrt(H) and 1/sqrt(H); gains at 1, biases at 0.
    """

    gates: int
    states = 1
    __prepare_scriptable__ = _validation_modules.not_scriptable

    def __init__(self, input_size: int, hidden_size: int, bias: bool, eps: float) -> None:
        super().__init__()
        checks.sizes(input_size=input_size, hidden_size=hidden_size)
        _validation_modules.settings(eps)
        checks.flags(bias=bias)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        self.eps = eps

    def _load_from_state_dict(self, state_dict, prefix, *others) -> None:
        if any(key.startswith(f"{prefix}bias_hh") for key in state_dict):
            errors = others[-1]
            errors.append(
                "these are the parameters of one of torch.nn's layers or cells, which have no "
                "norms; layernorm.recurrent.convert.from_torch(module) makes a layer with norms "
                "from a layer; for a cell, copy weight_ih and weight_hh"
            )
        super()._load_from_state_dict(state_dict, prefix, *others)

    def _norms(self) -> dict[str, int]:
        """The sizes of the norms, by name."""
        rows = self.gates * self.hidden_size
        return {"ln_ih": rows, "ln_hh": rows}

    def _state_sizes(self) -> tuple[int, ...]:
        return (self.hidden_size,)

    def _shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        rows, state = self.gates * self.hidden_size, self._state_sizes()[0]
        shapes = {"weight_ih": (rows, inputs), "weight_hh": (rows, state)}
        if self.bias:
            shapes["bias_ih"] = (rows,)
        for norm, size in self._norms().items():
            shapes |= {f"{norm}_weight": (size,), f"{norm}_bias": (size,)}
        return shapes

    def _create(self, inputs: int, suffix: str, **options) -> None:
        for name, shape in self._shapes(inputs).items():
            setattr(self, name + suffix, nn.Parameter(torch.empty(shape, **options)))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the weights anew; gains 1, biases 0, learned initial states 0."""
        bound = 1 / math.sqrt(self.hidden_size)
        for name, parameter in self._named():
            if name.startswith("weight_"):
                nn.init.uniform_(parameter, -bound, bound)
            else:
                parameter.fill_(float(name.startswith("ln_") and "_weight" in name))

    def _named(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Its own parameters, not those of modules inside a subclass; those of
        `torch.nn.utils.parametrize` by the name that they stand for."""
        for name, parameter in self.named_parameters():
            name = name.removeprefix("parametrizations.")
            if name.partition(".")[0] not in self._modules:
                yield name, parameter

    def _get(self, name: str) -> Tensor:
        if (tensor := getattr(self, name)) is None:
            raise TypeError(f"{name} must be a torch.Tensor, got None")
        return tensor

    def _b(self, suffix: str) -> Tensor | None:
        return self._get(f"bias_ih{suffix}") if self.bias else None

    def _pairs(self, suffix: str, *norms: str) -> list[tuple[Tensor, Tensor] | None]:
        """Gain and bias of these norms; None for one that the variant does not have."""
        there = self._norms()
        return [
            (self._get(f"{norm}_weight{suffix}"), self._get(f"{norm}_bias{suffix}"))
            if norm in there
            else None
            for norm in norms
        ]

    def _printed(self, **defaults) -> str:
        changed = (
            f"{name}={getattr(self, name)}"
            for name, usual in defaults.items()
            if getattr(self, name, usual) != usual
        )
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *changed])

    def flatten_parameters(self) -> None:
        """Nothing to do: there is no cuDNN layout. Here for code written for `torch.nn.LSTM`."""


class LSTMParameters(Parameters):
    gates, states = 4, 2

    def __init__(
        self, input_size, hidden_size, bias, eps, proj_size: int, variant: str, forget_bias: float
    ) -> None:
        super().__init__(input_size, hidden_size, bias, eps)
        checks.projection(proj_size, hidden_size)
        named_variant(variant)
        checks.forget_bias(forget_bias, bias)
        self.proj_size = proj_size
        self.variant = variant
        self.forget_bias = forget_bias

    def _norms(self) -> dict[str, int]:
        named = named_variant(self.variant).form.named
        gates = {norm: size for norm, size in super()._norms().items() if norm in named}
        return gates | {"ln_c": self.hidden_size}

    def _state_sizes(self) -> tuple[int, ...]:
        return self.proj_size or self.hidden_size, self.hidden_size

    def _shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        projection = {"weight_hr": (self.proj_size, self.hidden_size)} if self.proj_size else {}
        return super()._shapes(inputs) | projection

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the weights anew; gains 1, biases 0 but the forget gate's part of b, forget_bias;
        learned initial states 0."""
        super().reset_parameters()
        for name, parameter in self._named():
            if name.startswith("bias_ih"):
                parameter[self.hidden_size : 2 * self.hidden_size] = self.forget_bias

    def _weights(self, suffix: str) -> LSTMWeights:
        w_ih, w_hh = self._get(f"weight_ih{suffix}"), self._get(f"weight_hh{suffix}")
        norms = self._pairs(suffix, "ln_ih", "ln_hh", "ln_c")
        w_hr = self._get(f"weight_hr{suffix}") if self.proj_size else None
        return LSTMWeights(w_ih, w_hh, self._b(suffix), *norms, w_hr)


class GRUParameters(Parameters):
    gates = 3

    def _weights(self, suffix: str) -> GRUWeights:
        w_ih, w_hh = self._get(f"weight_ih{suffix}"), self._get(f"weight_hh{suffix}")
        return GRUWeights(w_ih, w_hh, self._b(suffix), *self._pairs(suffix, "ln_ih", "ln_hh"))


class RNNParameters(Parameters):
    gates = 1

    def __init__(self, input_size, hidden_size, bias, eps, nonlinearity: str) -> None:
        super().__init__(input_size, hidden_size, bias, eps)
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f'nonlinearity must be "tanh" or "relu", got {nonlinearity!r}')
        self.nonlinearity = nonlinearity

    def _norms(self) -> dict[str, int]:
        return {"ln": self.hidden_size}

    def _shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        """b of eq. (4) is the norm's bias."""
        without = {"bias_ih"} if self.bias else {"ln_bias"}
        return {k: v for k, v in super()._shapes(inputs).items() if k not in without}

    def _weights(self, suffix: str) -> RNNWeights:
        w_ih, w_hh = self._get(f"weight_ih{suffix}"), self._get(f"weight_hh{suffix}")
        b = self._get(f"ln_bias{suffix}") if self.bias else None
        return RNNWeights(w_ih, w_hh, (self._get(f"ln_weight{suffix}"), b))
