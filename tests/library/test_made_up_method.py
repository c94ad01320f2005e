from pathlib import Path

from apart import python

HERE = Path(__file__).parent


def test_a_method_is_a_function_its_module_and_its_rows():
    """Experiments, benchmarks, figures and SymPy find all that `made_up_method.py` adds."""
    files = HERE / "made_up_method.py", HERE / "test_methods.py"
    options = "-q", "-p", "no:cacheprovider", "-k", "length", "-p", "library.made_up_method"
    found = python("-m", "pytest", *options, *files)
    assert found.returncode == 0, found.stdout + found.stderr
    assert " passed" in found.stdout
