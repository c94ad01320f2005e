"""The command `layernorm` as it is typed: what it prints, and the one line of an error."""

from typer.testing import CliRunner

from layernorm.cli import app


def layernorm(*arguments: str):
    return CliRunner().invoke(app, arguments)


def succeed(*arguments: str) -> str:
    result = layernorm(*arguments)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def refused(*arguments: str) -> str:
    """The one line of an error."""
    result = layernorm(*arguments)
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line
