"""The rooms keep their order: a room imports only rooms above it, and only engines move parameters."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import candid

ROOT = Path(candid.__file__).parent
# From the top down; rooms on one line are siblings that do not know each other.
ORDER = (
    ("parameters",),
    ("linalg",),
    ("kernels",),
    ("marginal",),
    ("priors",),
    ("likelihoods",),
    ("weights",),
    ("families", "objectives"),
    ("engines",),
    ("methods",),
    ("predictive",),
    ("estimators",),
    ("metrics",),
    ("datasets",),
    ("plots",),
    ("report",),
    ("bench",),
    ("bo",),
    ("cli",),
)
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
# The public names, and help for running scikit-learn's checks.
EXEMPT = {"__init__", "testing"}
FILES = sorted(ROOT.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(tree: ast.AST, package: tuple[str, ...]) -> set[str]:
    """The rooms that a module of ``package`` imports anywhere, inside functions too."""
    modules: list[tuple[str, ...]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            modules += [(*base, alias.name) for alias in node.names]
    return {module[1] for module in modules if module[0] == "candid" and len(module) > 1}


def rooms_seen_by(source: str, package: str = "candid.engines") -> set[str]:
    return imported_rooms(ast.parse(source), tuple(package.split(".")))


def calls_of(tree: ast.AST, names: set[str]) -> list[int]:
    """Lines on which a method or function of one of these names is called."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
            if name in names:
                found.append(node.lineno)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_rooms_above_it(path):
    room = room_of(path)
    if room in EXEMPT:
        return
    assert room in LEVEL, f"{room} has no place in the order of rooms"
    package = ("candid", *path.relative_to(ROOT).parent.parts)
    for other in imported_rooms(ast.parse(path.read_text(encoding="utf-8")), package) - {room}:
        assert other in LEVEL, f"{other} has no place in the order of rooms"
        assert LEVEL[other] < LEVEL[room], f"{room} may not import {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_engines_move_parameters(path):
    lines = calls_of(ast.parse(path.read_text(encoding="utf-8")), {"backward", "step"})
    assert not lines or room_of(path) == "engines", f"backward or step is called on lines {lines}"


@pytest.mark.parametrize("path", sorted((Path(__file__).parent / "oracles").glob("*.py")), ids=lambda path: path.stem)
def test_oracles_do_not_use_what_they_judge(path):
    """Comparisons with other libraries build our side from the helpers of the tests, and theirs without our code."""
    used = imported_rooms(ast.parse(path.read_text(encoding="utf-8")), ("oracles",))
    assert not used & {"linalg", "kernels", "families"}


def test_all_forms_of_import_are_seen():
    assert rooms_seen_by("import candid.linalg") == {"linalg"}
    assert rooms_seen_by("from candid.weights.solve import optimal_weights") == {"weights"}
    assert rooms_seen_by("from candid import cli, metrics as m") == {"cli", "metrics"}
    assert rooms_seen_by("def f():\n    from candid.bench import run") == {"bench"}
    assert rooms_seen_by("from ..kernels import Kernel") == {"kernels"}
    assert rooms_seen_by("from .. import plots") == {"plots"}
    assert rooms_seen_by("from .rows import Rows") == {"engines"}
    assert rooms_seen_by("import torch\nfrom candidate import linalg") == set()


def test_calls_are_told_from_definitions():
    assert calls_of(ast.parse("class F:\n    def backward(ctx, g): ..."), {"backward"}) == []
    assert calls_of(ast.parse("loss.backward()\nopt.step(f)\nstep(1)"), {"backward", "step"}) == [1, 2, 3]
