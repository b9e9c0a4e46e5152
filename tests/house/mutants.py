"""Do the tests notice when the product is wrong? Mutants of the source, one at a time, and the tests of their rooms.

    python tests/house/mutants.py 40                      forty of them, drawn by seed 20
    deltacompact/planning/decisions.py:71    <  ->  <=    killed by quick    2.1 s
    deltacompact/planning/worth.py:35        <  ->  <=    killed by test    31.0 s
    deltacompact/iceberg/commit/attempts.py:33 and -> or    LIVES     49.8 s

It works in a copy of the tree. A mutant that outlives the tests of `make quick` meets those of `make test`, then
as many random examples as the tests ask for. One that lives is a missing test, or a change that changes nothing: look
at it.
"""

from __future__ import annotations

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEED = 20
TESTS = {
    "deltacompact/planning/*.py": ("tests/planning", "tests/steps"),
    "deltacompact/index/*.py": ("tests/index", "tests/steps", "tests/kernels"),
    "deltacompact/steps/*.py": ("tests/steps", "tests/index", "tests/tabular/test_read_ahead.py"),
    "deltacompact/delta_streams/log/*.py": ("tests/delta_streams",),
    "deltacompact/iceberg/commit/*.py": ("tests/iceberg", "tests/iceberg_modes"),
    "deltacompact/iceberg_modes/*/validation.py": ("tests/iceberg_modes",),
}
"""The source that decides about rows, and the rooms whose tests are asked."""
SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.BitOr: ast.BitAnd,
}  # fmt: skip


def places(path: Path) -> Iterator[tuple[int, str]]:
    """The operators of a module that may be swapped: how many come before it, and what it is."""
    for number, node in enumerate(operators(ast.parse(path.read_text()))):
        yield number, f"{type(node).__name__} -> {SWAPPED[type(node)].__name__}"


def operators(tree: ast.AST) -> Iterator[ast.AST]:
    """Those of annotations are left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            yield from (each for each in node.ops if type(each) in SWAPPED)
        elif isinstance(node, ast.BoolOp | ast.BinOp) and not _is_annotation(node) and type(node.op) in SWAPPED:
            yield node.op


def _is_annotation(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and "None" in ast.unparse(node)


def mutated(source: str, number: int) -> tuple[str, int]:
    """The source with that operator swapped, and its line."""
    tree = ast.parse(source)
    chosen = list(operators(tree))[number]
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and chosen in node.ops:
            node.ops = [SWAPPED[type(each)]() if each is chosen else each for each in node.ops]
            break
        if isinstance(node, ast.BoolOp | ast.BinOp) and node.op is chosen:
            node.op = SWAPPED[type(chosen)]()
            break
    return ast.unparse(tree), node.lineno


ASKED = (
    ("quick", "quick", "not processes and not slow"),
    ("test", "", "not processes"),
    ("whole", "whole", "not processes"),
)
"""Each question's name, its DELTACOMPACT_EXAMPLES and the marks of its tests. Tests that start processes take too
long."""


def killed_by(tree: Path, rooms: tuple[str, ...]) -> str | None:
    """The first question that the mutant fails. None: it lives."""
    return next((name for name, budget, marks in ASKED if not passes(tree, rooms, budget, marks)), None)


def passes(tree: Path, rooms: tuple[str, ...], budget: str, marks: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", marks, "-p", "no:cacheprovider", *rooms]
    environment = {**os.environ, "PYTHONPATH": str(tree), "DELTACOMPACT_EXAMPLES": budget}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, check=False).returncode == 0


def main(many: int, only: str = "") -> None:
    every = [
        (path.relative_to(ROOT), number, what, rooms)
        for pattern, rooms in TESTS.items()
        if only in pattern
        for path in sorted(ROOT.glob(pattern))
        for number, what in places(path)
    ]
    tree = Path(tempfile.mkdtemp()) / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv", "target", "__pycache__"))
    for rooms in set(TESTS.values()):
        assert passes(tree, rooms, *ASKED[0][1:]), f"{rooms} fail without a mutant"
    for path, number, what, rooms in random.Random(SEED).sample(every, min(many, len(every))):
        source = (ROOT / path).read_text()
        text, line = mutated(source, number)
        (tree / path).write_text(text)
        started_s = time.monotonic()
        question = killed_by(tree, rooms)
        said = f"killed by {question}" if question else "LIVES"
        print(f"{path}:{line}  {what}  {said}  {time.monotonic() - started_s:.1f} s", flush=True)
        (tree / path).write_text(source)
    shutil.rmtree(tree.parent)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
