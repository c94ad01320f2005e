"""Without typer the package works, and the command says what to install."""

import pytest
from apart import python

WITHOUT = "import sys; sys.modules['typer'] = None; "


@pytest.mark.parametrize(
    "start",
    [
        "from layernorm.__main__ import main; main()",
        "import runpy; runpy.run_module('layernorm', run_name='__main__')",
    ],
)
def test_the_command_says_what_it_needs(start):
    done = python("-c", WITHOUT + start)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].endswith('pip install "layernorm[cli]"')
    assert "Traceback" not in done.stderr


def test_a_layer_does_not_need_it():
    done = python("-c", WITHOUT + "import layernorm; layernorm.LayerNormLSTM(3, 5)")
    assert done.returncode == 0, done.stderr
