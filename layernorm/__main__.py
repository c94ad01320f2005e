"""The command `layernorm`, which is `python -m layernorm` as well."""

import signal
import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command, or say what it needs."""
    if find_spec("typer") is None:
        sys.exit(
            "layernorm: the command needs the package typer, which is not installed; "
            'install it with: pip install "layernorm[cli]"'
        )
    from layernorm.cli import app

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends in order, as by Ctrl-C
    app(prog_name="layernorm")


if __name__ == "__main__":
    main()
