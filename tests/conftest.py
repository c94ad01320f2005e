"""Checks the annotated shapes of every call into the package while the tests run."""

from jaxtyping import install_import_hook

install_import_hook("layernorm", "typechecker.check")
