"""The command `layernorm`, as it is typed."""

from typer.testing import CliRunner

from layernorm.cli import app


def layernorm(*words: str):
    return CliRunner().invoke(app, words)


def refused(*words: str) -> str:
    """The one line of an error."""
    result = layernorm(*words)
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line
