"""Checks the annotated shapes of every call into the package while the tests run."""

import os
from pathlib import Path

from jaxtyping import install_import_hook

install_import_hook("layernorm", "typechecker.check")
# Programs that tests start find the helpers in this folder, too.
_paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _paths))
