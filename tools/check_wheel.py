"""Is the installed wheel the whole package, and does it work far from the repository?

.ci/run calls it with the Python of an environment that has the wheel and nothing of the repository:
`contents WHEEL SOURCE`, `import`, `notebook FILE`, `command`, each in an empty folder.
"""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

IMPORT_SECONDS = 2.0
HEAVY = ("matplotlib", "sympy", "pandas", "pooch", "scipy", "sklearn", "typer")
MEASURE = f"""
import sys, time
import torch
start = time.perf_counter()
import layernorm
seconds = time.perf_counter() - start
loaded = [name for name in {HEAVY} if name in sys.modules]
print(layernorm.__file__, seconds, *loaded)
"""
WHERE = "import layernorm\nprint(layernorm.__file__)"
COMMAND = str(Path(sys.executable).parent / "layernorm")


def require(condition: bool, message: str) -> None:
    if not condition:
        sys.exit(f"wheel: {message}")


def inside_environment(file: str) -> bool:
    return Path(file).resolve().is_relative_to(Path(sys.prefix).resolve())


def contents(wheel: str, source: str) -> None:
    """Every file of the package is in the wheel, and nothing else but its metadata."""
    root = Path(source)
    expected = {str(f.relative_to(root)) for f in root.glob("layernorm/**/*") if f.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    require(names == expected, f"missing {expected - names}, superfluous {names - expected}")
    require("layernorm/py.typed" in names, "no py.typed")
    print(f"{len(names)} files, the package's and no others")


def importing() -> None:
    """`import layernorm` is quick and loads neither plotting nor symbols nor tables; the command,
    which the package by itself cannot run, says what to install."""
    code = [sys.executable, "-c", MEASURE]
    subprocess.run(code, check=True, capture_output=True)  # the first import writes bytecode
    report = subprocess.run(code, check=True, capture_output=True, text=True).stdout.split()
    file, seconds, *loaded = report
    require(inside_environment(file), f"imported {file}, which is not the installed package")
    require(not loaded, f"`import layernorm` loads {', '.join(loaded)}")
    require(float(seconds) < IMPORT_SECONDS, f"`import layernorm` took {seconds} s beyond torch")
    print(f"import layernorm: {float(seconds):.2f} s beyond torch")
    refused = subprocess.run([COMMAND], capture_output=True, text=True)
    told = refused.returncode == 1 and "layernorm[cli]" in refused.stderr
    require(told, f"the command does not say what it needs: {refused.stderr}")


def notebook(path: str) -> None:
    """A chapter runs here, an empty folder, with the installed package."""
    import nbformat
    from nbclient import NotebookClient

    chapter = nbformat.read(path, as_version=4)
    chapter.cells.append(nbformat.v4.new_code_cell(WHERE))
    client = NotebookClient(chapter, kernel_name="python3", timeout=900, resources={})
    client.execute()
    file = chapter.cells[-1].outputs[0].text.strip()
    require(inside_environment(file), f"the notebook used {file}, not the installed package")
    require(not any(Path.cwd().iterdir()), f"the notebook left {list(Path.cwd().iterdir())} behind")
    print(f"{Path(path).name} ran with the installed package")


def command() -> None:
    """The command line describes the machine and decides every claim."""
    subprocess.run([COMMAND, "doctor"], check=True)
    deciding = [COMMAND, "claims", "--check", "--json"]
    decided = subprocess.run(deciding, check=True, stdout=subprocess.PIPE)
    claims = json.loads(decided.stdout)
    require(bool(claims), "`layernorm claims` lists nothing")
    tested = [claim for claim in claims if claim["verdict"] != "not yet tested"]
    silent = [c["id"] for c in tested if not (c["verdict"] and (c["evidence"] or c["reason"]))]
    require(not silent, f"claims without verdict or evidence: {', '.join(silent)}")
    print(f"{len(claims)} claims, {len(tested)} of them decided")


if __name__ == "__main__":
    checks = {"contents": contents, "import": importing, "notebook": notebook, "command": command}
    checks[sys.argv[1]](*sys.argv[2:])
