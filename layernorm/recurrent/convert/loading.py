"""The parts that the conversions share: the source's tensors, and the new layer's state."""

from collections.abc import Mapping

from torch import Tensor, nn

from layernorm.recurrent.layers import Layer


def state_of(source) -> dict[str, Tensor]:
    if not isinstance(source, nn.Module | Mapping):
        raise TypeError(f"source must be a module or its state dict, got {type(source).__name__}")
    return dict(source.state_dict() if isinstance(source, nn.Module) else source)


def like(weight: Tensor) -> dict:
    return {"device": weight.device, "dtype": weight.dtype}


def taken(options: dict, *names: str) -> None:
    """Everything else is the source's own."""
    if others := sorted(set(options) - set(names)):
        raise TypeError(f"options must be among {', '.join(names)}, got {', '.join(others)}")


def load(new: Layer, state: dict[str, Tensor]) -> Layer:
    """Load the state; parameters that it lacks keep their start, gains 1 and all others 0."""
    own = new.state_dict()
    for name, value in state.items():
        if name not in own or value.shape != own[name].shape:
            expected = f"shape {tuple(own[name].shape)}" if name in own else "no such parameter"
            raise ValueError(f"{name} from source: expected {expected}, got {tuple(value.shape)}")
    new.load_state_dict(own | state)
    return new
