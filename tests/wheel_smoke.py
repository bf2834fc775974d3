"""Use an installed wheel as a stranger would, without torch: `make wheel` runs this in a fresh environment.

Usage: python -P wheel_smoke.py CHECKOUT
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

HEAVY = ("torch", "numba", "matplotlib", "ortools")
COMMAND = Path(sys.prefix) / "bin" / "adaptpipe"


def python_files(package: Path) -> set[str]:
    """Return every Python file below `package`, through links, as relative paths."""
    return {
        os.path.relpath(os.path.join(folder, name), package)
        for folder, _, names in os.walk(package, followlinks=True)
        for name in names
        if name.endswith(".py")
    }


def adaptpipe(*args: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the installed command and insist on its exit code."""
    done = subprocess.run([COMMAND, *args], capture_output=True, text=True, check=False)
    line = " ".join(map(str, args))
    assert done.returncode == code, f"adaptpipe {line}: exit code {done.returncode}, not {code}\n{done.stderr}"
    assert "Traceback" not in done.stderr, f"adaptpipe {line}:\n{done.stderr}"
    return done


def answer(*args: str | Path) -> Any:
    """Run the installed command with `--json` and return what it says."""
    return json.loads(adaptpipe(*args, "--json").stdout)


def check_import(checkout: Path) -> None:
    """The package is the installed one, whole, and light to import."""
    import adaptpipe as package

    assert package.__file__ is not None
    installed = Path(package.__file__).parent
    assert Path(sys.prefix).resolve() in installed.resolve().parents, f"{installed} is not in {sys.prefix}"
    loaded = [name for name in HEAVY if name in sys.modules]
    assert not loaded, f"import adaptpipe loads {loaded}"
    assert importlib.util.find_spec("torch") is None, "torch is here; the base install must do without"
    assert (installed / "py.typed").is_file(), "py.typed is not in the wheel"
    difference = python_files(installed) ^ python_files(checkout / "adaptpipe")
    assert not difference, f"in the wheel or in the checkout, but not in both: {sorted(difference)}"


def check_problem(problem: Path, folder: Path) -> None:
    """Solve one problem file and put its schedule through every command that does without torch."""
    schedule, chart = folder / f"{problem.stem}.json", folder / f"{problem.stem}.png"
    solved = answer("solve", problem, "--time-limit", "10", "--workers", "1", "-o", schedule)
    assert solved["status"] in ("OPTIMAL", "FEASIBLE"), solved
    assert solved["bound"] <= solved["makespan"], solved
    simulated = answer("simulate", problem, schedule)
    assert simulated["makespan"] == solved["makespan"], (simulated, solved)
    adaptpipe("check", problem, schedule)
    assert "F" in adaptpipe("show", problem, schedule).stdout
    adaptpipe("show", problem, schedule, "-o", chart)
    assert chart.read_bytes().startswith(b"\x89PNG"), f"{chart} is not a PNG file"
    assert answer("compare", problem, "--methods", "1F1B,ZB-H1,greedy")
    print(f"{problem.name}: {solved['status']}, makespan {solved['makespan']} {solved['unit']}")


def main(checkout: Path) -> None:
    """Check the import, then every example."""
    check_import(checkout)
    examples = sorted((checkout / "examples").glob("*.toml"))
    problems = [path for path in examples if "costs" in tomllib.loads(path.read_text(encoding="utf-8"))]
    assert problems, f"no problem file among {[path.name for path in examples]}"
    with tempfile.TemporaryDirectory() as folder:
        for problem in problems:
            check_problem(problem, Path(folder))
        for run in set(examples) - set(problems):
            said = adaptpipe("run", run, code=2).stderr
            assert "adaptpipe[torch]" in said, f"adaptpipe run {run.name} without torch gives no remedy:\n{said}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
