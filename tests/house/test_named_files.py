"""Docstrings, comments and documents name files that exist.

a docstring names a module that went       the test names file, line and module
a page names such a path in backticks      the test names the path
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TRACKED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
NAMES = {Path(path).name for path in TRACKED}
CODE = [ROOT / path for path in TRACKED if path.endswith((".py", ".rs")) and not path.startswith("tests/golden")]
PAGES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "benchmarks/README.md", *sorted(
    path for path in TRACKED if path.startswith("docs/") and path.endswith(".md")
)]  # fmt: skip
OF_OTHERS = {"b.py", "user.py"}
"""Names in examples."""
_FILE = re.compile(r"(?<![\w*./{<-])([A-Za-z_][\w/]*\.(?:py|rs))\b(?!\()")
_PATH = re.compile(r"`((?:deltacompact|sessions|tests|benchmarks|docs|deploy)/[\w./-]+)`")
_TEXT = re.compile(r'"""(.*?)"""|#\s(.*?)$|//[/!]?\s(.*?)$', re.S | re.M)


def test_docstrings_and_comments_name_files_that_exist():
    found = []
    for path in CODE:
        text = path.read_text()
        for said in _TEXT.finditer(text):
            for name in _FILE.findall(said[0]):
                if Path(name).name not in NAMES | OF_OTHERS or ("/" in name and not ends_a_path(name)):
                    found.append(f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, said.start()) + 1}: {name}")
    assert found == []


def ends_a_path(name: str) -> bool:
    return any(path == name or path.endswith(f"/{name}") for path in TRACKED)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_paths_that_exist(page):
    named = [path.rstrip("/") for path in _PATH.findall((ROOT / page).read_text())]
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md", *(page for page in PAGES if "docs/" in page)])
def test_a_page_names_modules_that_exist(page):
    named = re.findall(r"`((?:\w+/)*\w+\.(?:py|rs))`", (ROOT / page).read_text())
    assert [name for name in named if not ends_a_path(name)] == []
