"""beartype as the import hook uses it: an int may stand where a float is asked for (PEP 484).

A test's first calls are checked, `MOST` of them: a check takes longer than most calls, and in what
trains or meets an adversary, ten minutes of the tests went into annotations that had held thousands
of times before. A function within another is decorated at every call of that one, which takes a
millisecond: it is checked if it is annotated, as long as anything is."""

import functools

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping._decorator import jaxtyped  # not the one below, where pytest imports this twice

MOST = 5000  # of arguments and results; half a second
_told = beartype(conf=BeartypeConf(is_pep484_tower=True))
_left = 0


def start() -> None:
    """Another test begins."""
    global _left
    _left = MOST
    jaxtyping.config.update("jaxtyping_disable", False)


def check(function):
    checked = _told(function)

    @functools.wraps(function)
    def counted(*args, **kwargs):
        global _left
        _left -= 1
        if not _left:
            jaxtyping.config.update("jaxtyping_disable", True)
        return checked(*args, **kwargs)

    return counted


def decorated(*, typechecker):
    def of(thing):
        within = "<locals>" in thing.__qualname__
        if within and (jaxtyping.config.jaxtyping_disable or not thing.__annotations__):
            return thing
        return jaxtyped(thing, typechecker=typechecker)

    return of


jaxtyping.jaxtyped = decorated  # which the hook's decorators look up
