"""Other people's kernels: found if installed, each called as its library wants, and gated."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from lab.benchmarks.benching import CPU, FEW

from layernorm.lab.benchmarks import norms
from layernorm.lab.benchmarks.measure import measure
from layernorm.lab.benchmarks.norms import implementations
from layernorm.lab.benchmarks.norms.case import OperationCase
from layernorm.lab.benchmarks.norms.implementations import NEEDS_CUDA, NOT_INSTALLED, candidates
from layernorm.lab.benchmarks.norms.operations import at
from layernorm.lab.benchmarks.norms.peers import PEERS
from layernorm.lab.records import staleness

RMS_EPS = torch.finfo(torch.float32).eps


def rms(x, weight, eps):
    assert eps == RMS_EPS
    assert x.dim() == 2
    assert weight.dim() == 1
    return F.rms_norm(x, weight.shape, weight, eps)


def layer(x, weight, bias, eps):
    assert x.dim() == 2
    assert weight.dim() == bias.dim() == 1
    return F.layer_norm(x, weight.shape, weight, bias, eps)


class Liger:
    @staticmethod
    def liger_layer_norm(X, W, B, eps):
        return layer(X, W, B, eps)

    @staticmethod
    def liger_rms_norm(X, W, eps, offset=0.0, casting_mode="llama", in_place=True):
        assert not in_place  # or it writes over the gradient that is timed again
        return rms(X, W, eps)

    @staticmethod
    def liger_group_norm(
        X, affine_scaling_weight, affine_shifting_bias, num_channels, num_groups, eps
    ):
        assert X.dim() >= 3
        assert X.shape[1] == num_channels
        return F.group_norm(X, num_groups, affine_scaling_weight, affine_shifting_bias, eps)


class Apex:
    @staticmethod
    def fused_layer_norm_affine(
        input, weight, bias, normalized_shape, eps=1e-6, memory_efficient=False
    ):
        assert tuple(normalized_shape) == weight.shape
        return layer(input, weight, bias, eps)

    @staticmethod
    def fused_rms_norm_affine(input, weight, normalized_shape, eps=1e-6, memory_efficient=False):
        assert tuple(normalized_shape) == weight.shape
        return rms(input, weight, eps)


class _Engine(torch.nn.Module):
    names = ("weight", "bias")

    def __init__(self, normalized_shape, eps=1e-5, *, device=None, dtype=None):
        super().__init__()
        self.eps = eps
        for name in self.names:
            start = torch.full((normalized_shape,), torch.nan, device=device, dtype=dtype)
            setattr(self, name, torch.nn.Parameter(start))  # never what the benchmark gives

    def forward(self, x):
        return layer(x, self.weight, self.bias, self.eps)


class _EngineRMS(_Engine):
    names = ("weight",)

    def forward(self, x):
        return rms(x, self.weight, self.eps)


class Engine:
    LayerNorm, RMSNorm = _Engine, _EngineRMS


class Quack:
    @staticmethod
    def rmsnorm(x, weight=None, bias=None, residual=None, out_dtype=None, eps=1e-6):
        return rms(x, weight, eps)

    @staticmethod
    def layernorm_fwd(x, weight, bias=None, eps=1e-6, return_rstd=False, return_mean=False):
        assert weight.dtype == bias.dtype == torch.float32
        y, mean, rstd = torch.native_layer_norm(x, weight.shape, weight, bias, eps)
        if not return_rstd:
            return y
        assert return_mean
        return y, rstd.flatten(), mean.flatten()

    @staticmethod
    def layernorm_bwd(x, weight, dout, rstd, mean, has_bias=True):
        assert x.dim() == dout.dim() == 2
        assert dout.is_contiguous()
        assert rstd.shape == mean.shape == x.shape[:1]
        assert weight.dtype == torch.float32
        assert has_bias
        return _backward(dout, x, weight, rstd[:, None], mean[:, None])


class _Out:
    """An output of cuDNN's graphs; its methods give it back."""

    kept, kind = False, None

    def set_output(self, kept):
        self.kept = kept
        return self

    def set_data_type(self, kind):
        self.kind = kind
        return self


class Cudnn:
    """Graphs that are built once for each shape, and computed with what they are given by tensor;
    statistics are there in training alone."""

    data_type = SimpleNamespace(FLOAT="float", HALF="half", BFLOAT16="bfloat16")
    norm_forward_phase = SimpleNamespace(INFERENCE="inference", TRAINING="training")
    heur_mode = SimpleNamespace(A="a", FALLBACK="fallback")
    create_handle = staticmethod(lambda: "handle")
    set_stream = staticmethod(lambda handle, stream: None)

    class pygraph:
        def __init__(self, io_data_type, intermediate_data_type, compute_data_type, handle):
            assert (io_data_type, intermediate_data_type, handle) == ("float", "float", "handle")
            self.sizes, self.built = {}, False

        def tensor(self, name, dim, stride, data_type, is_pass_by_value=False):
            assert dim[2:] == [1, 1]
            assert stride == [dim[1], 1, dim[1], dim[1]]
            assert data_type == "float"
            assert is_pass_by_value is (name == "eps")
            made = object()
            self.sizes[made] = dim[0] * dim[1]
            return made

        def _made(self, compute, given, count):
            assert self.sizes.keys() == set(given)
            self.compute, self.given = compute, given
            self.out = [_Out() for _ in range(count)]
            return self.out

        def layernorm(self, name, norm_forward_phase, input, scale, bias, epsilon):
            def compute(x, weight, bias, eps):
                assert float(eps) == pytest.approx(1e-5)
                return torch.native_layer_norm(x, weight.shape, weight, bias, float(eps))

            count = {"inference": 1, "training": 3}[norm_forward_phase]
            made = self._made(compute, [input, scale, bias, epsilon], count)
            return [*made, *[None] * (3 - count)]

        def layernorm_backward(self, name, grad, input, scale, mean, inv_variance):
            return self._made(_backward, [grad, input, scale, inv_variance, mean], 3)

        def rmsnorm(self, name, norm_forward_phase, input, scale, bias, epsilon):
            def compute(x, weight, eps):
                assert float(eps) == RMS_EPS
                inverse = (x.square().mean(1, keepdim=True) + float(eps)).rsqrt()
                return x * inverse * weight, inverse

            assert bias is None
            count = {"inference": 1, "training": 2}[norm_forward_phase]
            made = self._made(compute, [input, scale, epsilon], count)
            return [*made, *[None] * (2 - count)]

        def rmsnorm_backward(self, name, grad, input, scale, inv_variance, has_dbias):
            assert not has_dbias
            made = self._made(_backward, [grad, input, scale, inv_variance], 2)
            return [*made, None]

        def build(self, heuristics):
            self.built = True

        def get_workspace_size(self):
            return 16

        def execute(self, values, room, handle):
            assert self.built
            assert room.numel() == 16
            assert values.keys() == {*self.given, *self.out}
            assert all(values[one].numel() == size for one, size in self.sizes.items())
            made = self.compute(*(values[one].detach() for one in self.given))
            for out, value in zip(self.out, made, strict=False):
                assert (out.kept, out.kind) == (True, "float")
                values[out].copy_(value.view_as(values[out]))


def _backward(dy, x, weight, inverse, mean=None):
    """Gradients of x, gain and bias; without a mean those of RMS normalization."""
    assert dy.is_contiguous()
    normalized = (x if mean is None else x - mean) * inverse
    inner = dy * weight
    centered = inner if mean is None else inner - inner.mean(1, keepdim=True)
    share = normalized * (inner * normalized).mean(1, keepdim=True)
    return inverse * (centered - share), (dy * normalized).sum(0), dy.sum(0)


class Flash:
    @staticmethod
    def layer_norm_fn(x, weight, bias, residual=None, eps=1e-6, prenorm=False):
        total = x if residual is None else x + residual
        y = layer(total, weight, bias, eps)
        return (y, total) if prenorm else y

    @staticmethod
    def rms_norm_fn(x, weight, bias, residual=None, eps=1e-6, prenorm=False):
        assert bias is None
        return rms(x, weight, eps)


FAKES = {
    "liger": Liger,
    "apex": Apex,
    "transformer_engine": Engine,
    "quack": Quack,
    "flash_attn": Flash,
    "cudnn": Cudnn,
}


@pytest.fixture
def install(monkeypatch):
    """Puts a peer's module, with these functions or its fake's, where it is imported from."""

    def put(name, functions=None):
        (peer,) = (peer for peer in PEERS if peer.name == name)
        functions = functions or FAKES[name]
        parts = peer.module.split(".")
        for i in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:i]), ModuleType(".".join(parts[:i])))
        for public in (each for each in dir(functions) if not each.startswith("_")):
            setattr(sys.modules[peer.module], public, getattr(functions, public))

    monkeypatch.setattr(implementations, "_on_gpu", lambda device: True)
    stream = SimpleNamespace(cuda_stream=0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    for peer in PEERS:
        monkeypatch.setitem(sys.modules, peer.module.partition(".")[0], None)
    return put


def status(name, mode="forward+backward"):
    """The status of every implementation after the gate."""
    benchmark, refused = candidates(norms.OPERATIONS[name], CPU, compiled=False)
    names = tuple(n for n in benchmark.implementations if n != "triton")
    fields = {"implementations": names, "source": benchmark, "mode": mode, **FEW}
    rows = measure(OperationCase(name, at(name, 6, 40), **fields), roof=1e9)
    return {row.implementation: row.status for row in rows} | refused


OPERATIONS = [(peer, name) for peer in PEERS for name in peer.operations]


def test_the_peers_are_those_of_the_issue():
    assert {peer.name for peer in PEERS} == set(FAKES)
    assert {name for _, name in OPERATIONS} <= set(norms.OPERATIONS)


@pytest.mark.parametrize(("peer", "name"), OPERATIONS, ids=lambda v: getattr(v, "name", v))
def test_an_installed_peer_is_called_as_its_library_wants(install, peer, name):
    install(peer.name)
    assert status(name)[peer.name] == "measured"
    assert status(name, "forward")[peer.name] == "measured"


def test_a_peer_with_another_signature_says_so(install):
    install("liger", type("Other", (), {"liger_layer_norm": staticmethod(lambda x: x)}))
    assert status("layer")["liger"].startswith("failed: TypeError")
    assert status("rms")["liger"].startswith("failed: AttributeError")


def test_gradients_come_from_the_library_s_own_backward(install, monkeypatch):
    install("quack")
    module, real = sys.modules["quack.rmsnorm"], Quack.layernorm_bwd
    monkeypatch.setattr(module, "layernorm_bwd", lambda *a: (*real(*a)[:2], 2 * real(*a)[2]))
    assert status("layer")["quack"].startswith("wrong: ")
    monkeypatch.delattr(module, "layernorm_bwd")  # as in the versions before it had one
    assert status("layer")["quack"].startswith("failed: AttributeError")
    assert status("layer", "forward")["quack"] == "measured"


@pytest.mark.parametrize(
    ("name", "moments"), [("layer", {"mean", "inverse"}), ("rms", {"inverse"})]
)
def test_cudnn_keeps_statistics_where_a_gradient_is_to_come_alone(
    install, monkeypatch, name, moments
):
    install("cudnn")
    made, real = [], Cudnn.pygraph._made

    def kept(self, compute, given, count):
        made.append(count)
        return real(self, compute, given, count)

    monkeypatch.setattr(Cudnn.pygraph, "_made", kept)
    assert status(name, "forward")["cudnn"] == "measured"
    assert made == [1]
    assert status(name, "forward+backward")["cudnn"] == "measured"
    assert made[1:] == [1 + len(moments)] * 2  # the norm with its statistics, the gradients


@pytest.mark.parametrize("name", ["layer", "rms"])
def test_cudnns_gradients_are_gated(install, monkeypatch, name):
    install("cudnn")
    real = _backward
    twice = lambda *given: (2 * real(*given)[0], *real(*given)[1:])  # noqa: E731
    monkeypatch.setitem(globals(), "_backward", twice)
    assert status(name)["cudnn"].startswith("wrong: ")


def test_rows_of_others_do_not_depend_on_the_peers():
    """So that a peer more makes no record on a CPU stale."""
    case = OperationCase("layer", (6, 40), source=norms.OPERATIONS["layer"])
    peers = "layernorm.lab.benchmarks.norms.peers.PEERS"
    assert all(peers not in case.depends_on(name) for name in ("torch", "definition", "triton"))
    assert all(peers in case.depends_on(peer.name) for peer in PEERS)
    place = OperationCase.__module__, OperationCase.__name__
    reached = staleness.code().reach([place], {}, False).definitions
    assert place in reached
    assert not any(name == "PEERS" for _, name in reached)


def test_an_absent_peer_is_not_installed(install):
    for name in norms.OPERATIONS:
        has = {peer.name for peer in PEERS if name in peer.operations}
        _, refused = candidates(norms.OPERATIONS[name], CPU, compiled=False)
        assert {n: why for n, why in refused.items() if n != "triton"} == dict.fromkeys(
            has, NOT_INSTALLED
        )


def test_a_peer_is_not_measured_on_a_cpu(install, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "quack", ModuleType("quack"))
    benchmark, refused = candidates(norms.OPERATIONS["rms"], CPU, compiled=False)
    assert refused["quack"] == refused["triton"] == NEEDS_CUDA
    assert list(benchmark.implementations) == ["definition", "torch"]
