"""Where checks are listed: CHECKS[operation][name of the check]."""

from collections import defaultdict
from collections.abc import Callable

CHECKS: dict[str, dict[str, Callable]] = defaultdict(dict)


def check(*operations: str) -> Callable:
    """List a check, a function of the function under test and its operation's name."""

    def register(function: Callable) -> Callable:
        for operation in operations:
            CHECKS[operation][function.__name__] = function
        return function

    return register
