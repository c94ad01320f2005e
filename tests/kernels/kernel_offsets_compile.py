"""Run as a program, not interpreted: print to which of its arrays each kernel adds offsets of 64
bits, and to which of 32, in Triton's own form of it."""

import json
import re
import sys

# First: it turns the interpreter off.
from kernel_compile import elsewhere, loop, means, step, sums, total

from layernorm.lab.analysis.compiled import backward, forward

CASES = {
    f"norm {make.__name__} {width}": (make, width, "bf16", 90, True, True)
    for make in (forward, backward)
    for width in (1024, 65536)
} | {
    f"{make.__name__} {direction} {form}": (make, direction, form, 128, "bf16")
    for make in (step, loop)
    for form in ("paper", "joint", "per_gate", "gru")
    for direction in ("forward", "backward")
}
CASES |= {"sums": (sums, "bf16"), "means": (means, 90), "total": (total, 90)}
LINE = re.compile(r"\s+(%\w+) = tt\.(\w+) (%\w+).*?(i\d+)?>*(?: loc\(.*)?")


def offsets(*case) -> dict[str, list[str]]:
    """The arrays by the bits of the first offset that is added to each: where a row begins. One to
    which both are added stands in both."""
    code = elsewhere(("cuda", 90, 32), *case).asm["ttir"]
    arrays = {f"%{name}": name for name in re.findall(r"%(\w+): !tt\.ptr", code)}
    found: dict[str, set[str]] = {"i64": set(), "i32": set()}
    for line in filter(None, map(LINE.fullmatch, code.splitlines())):
        value, operation, of, kind = line.groups()
        array = arrays.get(of)
        if operation == "addptr" and array:
            found[kind].add(array)
        elif array:  # the same in another form
            arrays[value] = array
    return {kind: sorted(names) for kind, names in found.items()}


if __name__ == "__main__":
    json.dump({name: offsets(*case) for name, case in CASES.items()}, sys.stdout)
