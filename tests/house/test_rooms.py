"""The rooms of the tests are those of the source, and each test module stands by itself.

deltacompact/index/        tests/index/
sessions/queues/           tests/sessions/queues/
sessions/billing/          no tests/sessions/billing/: the test names the room
a test imports test_plan    what two modules of tests share stands in a module of its own, or in tests/support
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
MODULES = sorted(TESTS.rglob("*.py"))


@pytest.mark.parametrize(("source", "tests"), [("deltacompact", "tests"), ("sessions", "tests/sessions")])
def test_every_room_of_the_source_has_a_room_of_tests(source: str, tests: str) -> None:
    rooms = {path.parent.name for path in (ROOT / source).glob("*/__init__.py")}
    assert {room for room in rooms if not any((ROOT / tests / room).rglob("test_*.py"))} == set()


def test_a_flat_folder_of_tests_is_no_room() -> None:
    assert [path.name for folder in (TESTS, TESTS / "sessions") for path in folder.glob("test_*.py")] == []


def test_no_test_module_imports_another() -> None:
    assert [(path.name, name) for path in MODULES for name in imported(path) if name.startswith("test_")] == []


def test_no_two_modules_of_tests_have_one_name() -> None:
    """Python finds them by their names alone: the folders of tests are no packages."""
    inside = TESTS / "support"
    names = Counter(path.name for path in MODULES if path.parent == inside or inside not in path.parents)
    assert [name for name, many in names.items() if many > 1 and name != "conftest.py"] == []


def imported(path: Path) -> set[str]:
    """The last names of the modules that it imports."""
    return {name.rpartition(".")[2] for name in re.findall(r"^\s*(?:from|import) ([\w.]+)", path.read_text(), re.M)}
