"""Is the installed wheel the whole package, and does it work far from the repository?

.ci/run calls it with the Python of an environment that has the wheel and nothing of the repository:
`contents WHEEL SOURCE`, `import`, `fast`, `notebook FILE`, `command`, each in an empty folder;
wheels.yml in a container without a compiler, too. `fast` is for wheels of one platform.
"""

import json
import os
import runpy
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
FAST = """
import torch
from torch.nn.utils.rnn import pack_padded_sequence
from layernorm import LayerNormGRU, LayerNormLSTM
from layernorm.recurrent.cpu import binding, build

torch.manual_seed(0)
error = 0.0
for kind in (LayerNormLSTM, LayerNormGRU):
    layer = kind(7, 101, num_layers=2, bidirectional=True, dtype=torch.float64)
    x = torch.randn(6, 9, 7, dtype=torch.float64, requires_grad=True)
    lengths, found = torch.tensor([6, 6, 5, 3, 3, 3, 2, 1, 1]), []
    for layer.backend in ("fused", "reference"):
        outputs = layer(x)[0], layer(pack_padded_sequence(x, lengths))[0].data
        y = torch.cat([output.flatten() for output in outputs])
        gradients = torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])
        found.append([y.detach(), *gradients])
    for got, expected in zip(*found, strict=True):
        error = max(error, float((got - expected).abs().max() / expected.abs().max()))
print(build.instruction_set(), error, binding.library()._name)
"""
LOWER = {"AVX512": ["avx2", "default"], "AVX2": ["default"], "baseline": []}  # as torch calls them
COMMAND = str(Path(sys.executable).parent / "layernorm")


def require(condition: bool, message: str) -> None:
    if not condition:
        sys.exit(f"wheel: {message}")


def inside_environment(file: str | Path) -> bool:
    return Path(file).resolve().is_relative_to(Path(sys.prefix).resolve())


def contents(wheel: str, source: str) -> None:
    """Every file of the package is in the wheel, in one for this platform a library for each
    instruction set, and nothing else but the metadata."""
    root = Path(source)
    expected = {str(f.relative_to(root)) for f in root.glob("layernorm/**/*") if f.is_file()}
    if not wheel.endswith("-none-any.whl"):
        expected |= libraries(root)
    with zipfile.ZipFile(wheel) as archive:
        files = [info.filename for info in archive.infolist() if not info.is_dir()]
    names = {name for name in files if ".dist-info/" not in name}
    require(names == expected, f"missing {expected - names}, superfluous {names - expected}")
    require("layernorm/py.typed" in names, "no py.typed")
    print(f"{len(names)} files, the package's and no others")


def libraries(root: Path) -> set[str]:
    """The files of the libraries compiled from these sources for this kind of machine."""
    build = runpy.run_path(str(root / "layernorm" / "recurrent" / "cpu" / "build.py"))
    folder = build["PREBUILT"].relative_to(root)
    names = [folder / build["library_name"](each) for each in build["instruction_sets"]()]
    return {str(name.with_suffix(suffix)) for name in names for suffix in (".so", ".sha256")}


def fast() -> None:
    """Where there is no compiler, no cache and no home folder the recurrent layers run the library
    of this wheel, for every instruction set that this machine has, to the definition's numbers."""
    for capability in LOWER[compute(None)]:
        compute(capability)


def compute(capability: str | None) -> str:
    """Check a process in which torch has this capability, by default the machine's; return the
    instruction set of the library that it used."""
    chosen = {"ATEN_CPU_CAPABILITY": capability} if capability else {}
    environment = {"PATH": "", "LAYERNORM_CACHE": os.devnull} | chosen
    code = [sys.executable, "-c", FAST]
    done = subprocess.run(code, env=environment, capture_output=True, text=True)
    require(done.returncode == 0, f"no fast path: {done.stderr}")
    instructions, error, library = done.stdout.split(maxsplit=2)
    library = Path(library.strip())
    require(inside_environment(library), f"{library} is not of the installed package")
    require(f"-{instructions}-" in library.name, f"{library} is not for {instructions}")
    require(float(error) < 1e-11, f"{library} is {error} from the definition")
    print(f"{library.name}: {float(error):.0e} from the definition")
    return instructions


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
    checks = {"contents": contents, "import": importing, "fast": fast}
    checks |= {"notebook": notebook, "command": command}
    checks[sys.argv[1]](*sys.argv[2:])
