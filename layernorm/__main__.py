"""`python -m layernorm` is the command `layernorm`."""

from layernorm.cli import app

app(prog_name="layernorm")
