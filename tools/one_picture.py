"""Draws book/_static/one-picture.svg: layer normalization in one picture, with computed numbers.

python tools/one_picture.py  (a test fails when the file is not what this draws)
"""

from pathlib import Path

from layernorm.lab.invariance_figure import CASE, UNIT, Sliders, outputs
from layernorm.methods import METHODS

FILE = Path(__file__).parents[1] / "book" / "_static" / "one-picture.svg"
LEFT, TOP, WIDTH, HEIGHT = 58, 40, 50, 30  # the matrix's corner, the size of its cells
INK, FAINT, PAPER = "#1f2430", "#5a6270", "#ffffff"


def draw() -> str:
    """The SVG: cases in rows, units in columns, one row and one column with their statistics."""
    results = outputs(Sliders())
    a = results["none"]
    cases, units = a.shape
    right, bottom = LEFT + units * WIDTH, TOP + cases * HEIGHT
    row_y, column_x = TOP + CASE * HEIGHT, LEFT + UNIT * WIDTH
    layer, batch = METHODS["layer"].color, METHODS["batch"].color
    parts = [
        _box(column_x, TOP, WIDTH, cases * HEIGHT, batch, 0.16),
        _box(LEFT, row_y, units * WIDTH, HEIGHT, layer, 0.16),
    ]
    parts += [_text(_x(i), TOP - 10, f"unit {i + 1}", FAINT) for i in range(units)]
    for n in range(cases):
        parts.append(_text(LEFT - 8, _y(n), f"case {n + 1}", FAINT, anchor="end"))
        parts += [_text(_x(i), _y(n), _number(a[n, i])) for i in range(units)]
    parts += [
        _frame(column_x, TOP, WIDTH, cases * HEIGHT, batch),
        _frame(LEFT, row_y, units * WIDTH, HEIGHT, layer),
        _text(right + 8, row_y + 11, METHODS["layer"].title, layer, "start", bold=True),
        _text(right + 8, row_y + 28, _statistics(a[CASE]), anchor="start"),
        _text(_x(UNIT), bottom + 20, METHODS["batch"].title, batch, bold=True),
        _text(_x(UNIT), bottom + 37, _statistics(a[:, UNIT])),
    ]
    below = bottom + 72
    said = f"Case {CASE + 1} after layer normalization, (a − μ)/σ:"
    parts.append(_text(LEFT, below - 9, said, layer, "start"))
    parts += [
        _text(_x(i), below + 20, _number(results["layer"][CASE, i]), bold=True)
        for i in range(units)
    ]
    parts.append(_frame(LEFT, below, units * WIDTH, HEIGHT, layer))
    parts.append(_text(right + 8, below + 20, _statistics(results["layer"][CASE]), anchor="start"))
    width, height = right + 172, below + HEIGHT + 14
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" font-size="14">\n'
        "<title>Summed inputs: cases in rows, units in columns</title>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _x(unit: int) -> int:
    return LEFT + unit * WIDTH + WIDTH // 2


def _y(case: int) -> int:
    return TOP + case * HEIGHT + 20


def _number(value: float) -> str:
    return f"{round(float(value), 2) + 0.0:.2f}".replace("-", "−")  # + 0.0: no minus before zero


def _statistics(values) -> str:
    return f"μ = {_number(values.mean())}, σ = {_number(values.std(correction=0))}"


def _text(x: int, y: int, text: str, fill: str = INK, anchor: str = "middle", bold=False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" fill="{fill}" text-anchor="{anchor}"{weight}>{text}</text>'


def _box(x: int, y: int, width: int, height: int, fill: str, opacity: float) -> str:
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{fill}" '
        f'fill-opacity="{opacity}"/>'
    )


def _frame(x: int, y: int, width: int, height: int, stroke: str) -> str:
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="none" '
        f'stroke="{stroke}" stroke-width="2.5"/>'
    )


if __name__ == "__main__":
    FILE.write_text(draw(), encoding="utf-8")
    print(FILE)
