"""The layout: folders at the root, links, mapping and package list in step; pins complete; files small."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LINKED = ("executor", "models", "solver")
FOLDERS = ("adaptpipe", "benchmarks", "docs", "examples", "tests")  # adaptpipe reaches the linked ones
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS: dict[str, Any] = PYPROJECT["tool"]["setuptools"]
MAX_LINES = {"adaptpipe": 400, "tests": 600}  # "under about 350"; a test file may hold more cases of its one idea
MAX_BYTES = 400_000


def files(folder: Path) -> Iterator[Path]:
    """Walk the files below a folder, through links, without what tools leave behind."""
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        yield from (Path(parent, name) for name in names if not name.endswith((".pyc", ".nbi", ".nbc")))


def packages() -> set[str]:
    """Every folder below adaptpipe/ that holds a Python file, as a dotted name."""
    found = {path.parent for path in files(ROOT / "adaptpipe") if path.suffix == ".py"}
    return {".".join(folder.relative_to(ROOT).parts) for folder in found}


@pytest.mark.parametrize("name", LINKED)
def test_folder_is_linked_mapped_banned_and_seen_by_pyright(name: str) -> None:
    link = ROOT / "adaptpipe" / name
    assert link.is_symlink(), f"adaptpipe/{name} must be a link: ln -s ../{name} adaptpipe/{name}"
    assert os.readlink(link) == f"../{name}", f"adaptpipe/{name} must be relative, or it breaks in a clone"
    assert SETUPTOOLS["package-dir"].get(f"adaptpipe.{name}") == name, "pyproject.toml, [tool.setuptools.package-dir]"
    assert f"adaptpipe/{name}" in PYPROJECT["tool"]["pyright"]["include"], "pyproject.toml, [tool.pyright] include"
    lint = PYPROJECT["tool"]["ruff"]["lint"]
    assert name in lint["flake8-tidy-imports"]["banned-api"], "pyproject.toml, ruff's banned-api"
    assert re.search(rf"^LINKS :=.* adaptpipe/{name}/( |$)", (ROOT / "Makefile").read_text(), re.MULTILINE), "Makefile"


def test_no_other_link_or_mapping() -> None:
    links = sorted(path.name for path in (ROOT / "adaptpipe").iterdir() if path.is_symlink())
    assert links == sorted(LINKED)
    assert sorted(SETUPTOOLS["package-dir"]) == [f"adaptpipe.{name}" for name in LINKED]


def test_package_list_names_every_package() -> None:
    listed = SETUPTOOLS["packages"]
    place = "pyproject.toml, [tool.setuptools] packages"
    assert listed == sorted(set(listed)), f"{place}: keep it sorted, without repeats"
    missing, gone = packages() - set(listed), set(listed) - packages()
    assert not missing, f"{place}: add {sorted(missing)}, or they will not be in the wheel"
    assert not gone, f"{place}: remove {sorted(gone)}, which hold no Python file"


def test_every_package_has_an_init() -> None:
    bare = [name for name in packages() if not (ROOT / name.replace(".", "/") / "__init__.py").is_file()]
    assert not bare, f"no __init__.py in {sorted(bare)}"


def test_every_data_file_is_shipped() -> None:
    shipped = SETUPTOOLS["package-data"]
    lost = []
    for name in sorted(packages()):
        folder = ROOT / name.replace(".", "/")
        patterns = [*shipped.get(name, ()), *shipped.get("*", ())]
        data = [path for path in folder.iterdir() if path.is_file() and path.suffix not in (".py", ".nbi", ".nbc")]
        lost += [path.relative_to(ROOT) for path in data if not any(path.match(pattern) for pattern in patterns)]
    assert not lost, f"pyproject.toml, [tool.setuptools.package-data] does not cover {[str(path) for path in lost]}"


@pytest.mark.parametrize("name", LINKED)
def test_folder_is_imported_from_its_place_under_one_name(name: str) -> None:
    module = import_module(f"adaptpipe.{name}")
    assert module.__file__ is not None
    assert Path(module.__file__).resolve() == ROOT / name / "__init__.py"
    assert name not in sys.modules, f"something imports {name} bare; write adaptpipe.{name}"


def test_import_is_light() -> None:
    code = (
        "import sys, adaptpipe; print([m for m in ('torch', 'numba', 'matplotlib', 'ortools', 'networkx', 'pulp')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_resolves() -> None:
    import adaptpipe

    assert len(set(adaptpipe.__all__)) == len(adaptpipe.__all__)
    for name in adaptpipe.__all__:
        assert getattr(adaptpipe, name) is getattr(adaptpipe.solver, name)
        assert name in dir(adaptpipe)
    with pytest.raises(AttributeError, match="module 'adaptpipe' has no attribute 'nonsense'"):
        _ = adaptpipe.nonsense


def test_constraints_pin_every_dependency() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {canonicalize_name(pin.name): pin for pin in map(Requirement, filter(re.compile(r"\w").match, lines))}
    for pin in pins.values():
        assert re.fullmatch(r"==[\w.]+", str(pin.specifier)), f"constraints.txt: {pin} must be one exact version"
    assert str(pins[canonicalize_name("torch")]) == "torch==2.13.0"
    project = PYPROJECT["project"]
    wanted = [
        *PYPROJECT["build-system"]["requires"],
        *project["dependencies"],
        *chain.from_iterable(project["optional-dependencies"].values()),
        *chain.from_iterable(PYPROJECT["dependency-groups"].values()),
    ]
    for want in map(Requirement, wanted):
        name = canonicalize_name(want.name)
        if name == "adaptpipe":  # an extra of ours that another one takes in
            continue
        assert name in pins, f"constraints.txt: pin {want.name}"
        version = str(pins[name].specifier).removeprefix("==")
        assert want.specifier.contains(version), f"constraints.txt: {pins[name]} against pyproject.toml's {want}"


@pytest.mark.parametrize("folder", [name for name in FOLDERS if (ROOT / name).is_dir()])
def test_files_are_small(folder: str) -> None:
    for path in files(ROOT / folder):
        assert path.stat().st_size <= MAX_BYTES, f"{path.relative_to(ROOT)} is over {MAX_BYTES} bytes"
        if path.suffix == ".py":
            lines, most = len(path.read_text(encoding="utf-8").splitlines()), MAX_LINES.get(folder, 400)
            assert lines <= most, f"{path.relative_to(ROOT)} has {lines} lines, over {most}: one idea a file"


def compiled(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """The functions of a file that numba compiles."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            names = {
                node.id for each in function.decorator_list for node in ast.walk(each) if isinstance(node, ast.Name)
            }
            if names & {"njit", "bare", "inner"}:
                yield function


def names_in(parts: Iterable[ast.AST]) -> set[str]:
    """The names that stand anywhere in some parts of a file."""
    return {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)}


def defines_class(path: Path, name: str) -> bool:
    """Whether a file has a class of this name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.ClassDef) and node.name == name for node in tree.body)


SOLVER = sorted(str(path.relative_to(ROOT)) for path in files(ROOT / "adaptpipe" / "solver") if path.suffix == ".py")


@pytest.mark.parametrize("name", SOLVER)
def test_compiled_code_names_the_files_it_is_compiled_with(name: str) -> None:
    """Numba's cache looks at the file of a function alone; what it calls or reads elsewhere would stay as it was.

    So would the places of the fields of a named tuple that it is given, whose class only the annotation names.
    """
    path = ROOT / name
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    from_file = {
        alias.asname or alias.name: path.parent.joinpath(*[".."] * (node.level - 1), *(node.module or "").split("."))
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }
    parts = [part for function in compiled(tree) for part in (*function.body, *function.decorator_list)]
    used = names_in(parts) & set(from_file)
    for each in names_in([function.args for function in compiled(tree)]) & set(from_file):
        if defines_class(from_file[each].with_suffix(".py"), each):  # not a mere alias, as `Array` is
            used.add(each)
    wanted = set()
    for each in used:
        source = from_file[each].with_suffix(".py")
        assert source.is_file(), f"{name}: import {each} from the file that makes it"
        digest = hashlib.sha256(source.read_bytes()).hexdigest()[:8]
        wanted.add(f"# Compiled with {source.name} {digest}")
    found = set(re.findall(r"^# Compiled with .*$", text, re.MULTILINE))
    assert found == wanted, f"{name}: write, below its imports,\n" + "\n".join(sorted(wanted))
