"""The choice between the loops over time, `step` and `persistent`, for those who compare them."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_persistent: ContextVar[bool | None] = ContextVar("persistent", default=None)


@contextmanager
def asked(persistent: bool | None) -> Iterator[None]:
    """Within the context, use `persistent`, or do not, whatever records say (None: they decide)."""
    before = _persistent.set(persistent)
    try:
        yield
    finally:
        _persistent.reset(before)


def asked_for() -> bool | None:
    """Return the choice that was asked for, or None if records decide."""
    return _persistent.get()
