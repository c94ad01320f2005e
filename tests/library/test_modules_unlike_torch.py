"""Where the norms differ from torch's: the list of the API page, item by item."""

import pytest
import torch
from torch import nn

import layernorm

X = torch.linspace(-1, 2, 24).view(4, 6)
NORMS = [
    (nn.LayerNorm, layernorm.LayerNorm),
    (nn.RMSNorm, layernorm.RMSNorm),
    (nn.BatchNorm1d, layernorm.BatchNorm),
]
BOTH = pytest.mark.parametrize(("theirs", "ours"), NORMS, ids=lambda kind: kind.__name__)


def test_one_class_for_any_number_of_dimensions():
    for kind, base in (("BatchNorm", "batchnorm"), ("InstanceNorm", "instancenorm")):
        module = getattr(layernorm, kind)(4)
        assert isinstance(module, getattr(getattr(nn.modules, base), f"_{kind}"))
        for theirs in (getattr(nn, f"{kind}{n}d") for n in (1, 2, 3)):
            assert not isinstance(module, theirs)


def test_an_instance_norms_input_has_its_batch_dimension():
    assert nn.InstanceNorm1d(4)(X).shape == X.shape
    with pytest.raises(ValueError, match="4 channels in dimension 1"):
        layernorm.InstanceNorm(4)(X)


@pytest.mark.filterwarnings("ignore:Mismatch dtype")
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64])
def test_types_that_torchs_rms_norm_mixes(kind):
    assert nn.RMSNorm(6).to(kind)(X).shape == X.shape
    with pytest.raises(TypeError, match="must have the input's type"):
        layernorm.RMSNorm(6).to(kind)(X)


@BOTH
def test_kinds_of_errors(theirs, ours):
    for made, shape, kind in ((theirs, RuntimeError, RuntimeError), (ours, ValueError, TypeError)):
        with pytest.raises(shape) as raised:
            made(6)(X[:, :5])
        assert raised.type is shape
        with pytest.raises(kind):  # NotImplementedError is a RuntimeError
            made(6)(X.long())


@BOTH
@pytest.mark.parametrize(("eps", "error"), [(-1.0, ValueError), ("1e-5", TypeError)])
def test_a_wrong_eps_is_refused_by_the_constructor(theirs, ours, eps, error):
    theirs(6, eps=eps)
    with pytest.raises(error, match="eps"):
        ours(6, eps=eps)
