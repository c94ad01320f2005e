"""Run the cells of a page: in CPython when the book is built, in Pyodide when a reader asks."""

import contextlib
import io
import traceback


def run(cells):
    """Return what each cell prints, and whether one of them raised.

    The cells share one new namespace. An exception ends the run; the last output then ends with
    its traceback.
    """
    namespace, outputs = {"__name__": "__main__"}, []
    for number, cell in enumerate(cells, 1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                exec(compile(cell, f"cell {number}", "exec"), namespace)
            except (Exception, SystemExit) as error:
                below = error.__traceback__.tb_next  # without the frame of this function
                traceback.print_exception(error.with_traceback(below))
                return [*outputs, printed.getvalue()], True
        outputs.append(printed.getvalue())
    return outputs, False
