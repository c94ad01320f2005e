"""Whoever differentiates in another way gets the definition's numbers from the layers as they are
made by default; never zeros."""

import pytest
import torch
from library.oracle import draw
from recurrent.recurrent_reference import LAYERS, shaken, usable
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn.utils.rnn import PackedSequence

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's own use
KINDS = pytest.mark.parametrize("kind", list(LAYERS))
FUSED = pytest.mark.parametrize("kind", ["lstm", "gru"])
X, TANGENT = draw(3, 2, 2, seed=1), draw(3, 2, 2, seed=2)


def pair(kind: str, inputs=2, units=3, **options):
    """The layer as it is made by default, and the same by its definition."""
    usable("fused")
    made = [
        shaken(LAYERS[kind](inputs, units, dtype=torch.float64, backend=backend, **options))
        for backend in ("auto", "reference")
    ]
    made[1].load_state_dict(made[0].state_dict())
    return made


def loss(module):
    return lambda x: module(x)[0].square().sum()


def agree(kind, compute, **options) -> None:
    got, expected = (compute(module) for module in pair(kind, **options))
    for g, e in zip(*map(torch.utils._pytree.tree_leaves, (got, expected)), strict=True):
        torch.testing.assert_close(g, e, rtol=1e-9, atol=1e-11)
        assert e.any()


@KINDS
@pytest.mark.parametrize(
    "transform",
    [
        lambda f: grad(f)(X),
        lambda f: vjp(f, X)[1](torch.tensor(2.0, dtype=torch.float64)),
        lambda f: jvp(f, (X,), (TANGENT,)),
        lambda f: jacfwd(f)(X),
        lambda f: jacrev(f)(X),
        lambda f: hessian(f)(X),
        lambda f: vmap(grad(f))(torch.stack([X, TANGENT])),
    ],
    ids=["grad", "vjp", "jvp", "jacfwd", "jacrev", "hessian", "vmap"],
)
def test_transforms(kind, transform):
    agree(kind, lambda module: transform(loss(module)))


@KINDS
def test_gradients_of_every_sequence_by_itself(kind):
    def per_sample(module):
        parameters = dict(module.named_parameters())

        def of_one(parameters, x):
            return functional_call(module, parameters, (x,))[0].square().sum()

        return vmap(grad(of_one), in_dims=(None, 1))(parameters, X)

    agree(kind, per_sample)


@KINDS
def test_forward_derivatives(kind):
    def along(module):
        with forward_ad.dual_level():
            y = module(forward_ad.make_dual(X, TANGENT))[0]
            return forward_ad.unpack_dual(y).tangent

    agree(kind, along)


def inputs(module, packed: bool):
    x = X.flatten(0, 1)[:5].clone().requires_grad_() if packed else X.clone().requires_grad_()
    y, _ = module(PackedSequence(x, torch.tensor([2, 2, 1])) if packed else x)
    return [x, *module.parameters()], (y.data if packed else y)


@KINDS
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}], ids=str)
def test_second_derivatives(kind, options, packed):
    def penalty(module):
        of, y = inputs(module, packed)
        slopes = torch.autograd.grad(y.square().sum(), of, create_graph=True)
        total = sum(s.square().sum() for s in slopes)
        return [*slopes, *torch.autograd.grad(total, of)]

    agree(kind, penalty, **options)


@KINDS
def test_many_gradients_at_once(kind):
    def batched(module):
        of, y = inputs(module, packed=False)
        rows = torch.eye(y.numel(), dtype=y.dtype).view(-1, *y.shape)
        return torch.autograd.grad(y, of, rows, is_grads_batched=True)

    agree(kind, batched)


@FUSED
def test_second_derivatives_of_a_tensor_that_stands_in_two_places(kind):
    """One gain for both norms: each place has its own gradient, and their sum is the tensor's."""

    def penalty(module):
        module.ln_hh_weight_l0 = module.ln_ih_weight_l0
        of, y = inputs(module, packed=False)
        slopes = torch.autograd.grad(y.square().sum(), of, create_graph=True)
        return [*slopes, *torch.autograd.grad(sum(s.square().sum() for s in slopes), of)]

    agree(kind, penalty)


@FUSED
def test_the_fused_path_by_itself_refuses_to_be_seen_through(kind):
    usable("fused")
    module = LAYERS[kind](2, 3, dtype=torch.float64, backend="fused")
    with pytest.raises(ValueError, match=r'torch\.func\'s transforms .*; use "auto"'):
        grad(loss(module))(X)
