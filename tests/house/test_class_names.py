"""One word, one thing: no two classes have one name, also not where one of them is private (`Read` and `_Read`)."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_no_two_classes_have_one_name():
    modules = defaultdict(list)
    for path in (path for room in ("deltacompact", "sessions") for path in (ROOT / room).rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                modules[node.name.lstrip("_")].append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in modules.items() if len(where) > 1} == {}
