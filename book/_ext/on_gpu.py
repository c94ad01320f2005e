"""Sphinx extension: the role `{on-gpu}` says on which GPUs our kernels are measured, by the
published records, so that a page cannot say otherwise than the chapters do.

    Their speeds {on-gpu}`norms`.

It reads: "are not measured on a GPU yet", or "are measured on NVIDIA H200"
"""

from docutils import nodes
from sphinx.util.docutils import SphinxRole

from layernorm.lab import records
from layernorm.lab.benchmarks import on_gpu


def shown() -> str:
    """The end of a sentence about our kernels' speeds."""
    with records.published_only():
        found = on_gpu.devices()
    return f"are measured on {' and '.join(found)}" if found else "are not measured on a GPU yet"


class OnGpu(SphinxRole):
    def run(self):
        return [nodes.Text(shown())], []


def setup(app):
    app.add_role("on-gpu", OnGpu())
    return {"version": "1", "parallel_read_safe": True}
