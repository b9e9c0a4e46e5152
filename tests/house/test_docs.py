"""The documents say what is true: Python blocks run, console sessions print what they show, links lead somewhere.

    ```console                          the commands run one after another, in a folder with the files of the tour
    ```python  ```text                  the block runs; what it prints is the text after it
    <!-- not run: needs a bucket -->    the next block is not run, and why

Each page has a Python namespace and a folder of its own, in which the README's tour was done. Positions and names of
files are new in every run: where the document first shows one, the test learns what it is called now. Sizes, seconds
and times are not compared.

`DELTACOMPACT_WRITE_DOCS=1 pytest tests/house/test_docs.py` writes what is printed into the documents.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from iceberg_lake import Lake
from pyiceberg import catalog
from pyiceberg.utils.config import Config

import sessions.cli
from deltacompact import cli

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", *(page for page in DOCS if re.search("^```(python|console)$", page.read_text(), re.M))]
TOUR = "/tmp/tour"
"""Where the documents run."""
_BLOCK = re.compile(r"(<!-- not run: [^>]+ -->\n)?^```(python|console|text)\n(.*?)^```$", re.M | re.S)
_LINK = re.compile(r"\]\(([^()#:]+)?(#[^()]+)?\)")
_NAMES = re.compile(r"\b1[78]\d{11}\b|\b\d{17,19}\b|\b[0-9a-f]{32}\b|\b[0-9a-f]{24}\b")
_MEASURED = re.compile(
    r"[\d.,]+ (?:B|KiB|MiB|GiB|bytes|core-seconds)\b|\b\d+\.\d(?=[,;]| s\b)|\b\d+ slots?\b"
    r"|\d{4}-\d\d-\d\d \d\d:\d\d(?: UTC)?| {2,}|[ ]+$",
    re.M,
)


@dataclass
class Page:
    """One page that is being run: its names of positions and files, and what they are called in this run."""

    text: str
    capfd: pytest.CaptureFixture[str]
    folder: Path
    dispatches: bool = False
    """Whether commands of the control plane run: they start processes."""

    def __post_init__(self):
        self.names: dict[str, str] = {}
        self.variables: dict[str, object] = {"__name__": "__main__"}
        self.printed = ""
        self.status = 0

    def run(self) -> str:
        """The page with what its blocks print."""
        return _BLOCK.sub(self._block, self.text)

    def _block(self, block: re.Match[str]) -> str:
        kind, body = block[2], block[3]
        if block[1]:
            assert kind == "python"
            return block[0]
        if kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(body, "a block of the documents", "exec"), self.variables)
            self.printed = out.getvalue()
        elif kind == "text":
            body = self._told(body, self.printed)
        else:
            body = "".join(map(self._command, re.split(r"^(?=\$ )", body, flags=re.M)[1:]))
        return f"```{kind}\n{body}```"

    def _command(self, told: str) -> str:
        line, _, expected = told.partition("\n")
        program, *arguments = shlex.split(_NAMES.sub(lambda name: self.names.get(name[0], name[0]), line[2:]))
        if program == "deltacompact-sessions" and not self.dispatches:
            return told
        if run := {"deltacompact": cli.run, "deltacompact-sessions": sessions.cli.run}.get(program):
            self.capfd.readouterr()
            self.status = run(arguments)
            printed, errors = self.capfd.readouterr()
            if self.status:
                printed += "".join(said for said in errors.splitlines(True) if said.startswith(f"{program}: "))
        else:
            assert line == "$ echo $?"
            printed = f"{self.status}\n"
        return f"{line}\n{self._told(expected, printed)}"

    def _told(self, expected: str, printed: str) -> str:
        """What is printed, in the words of the document where they are equal but for names and measured numbers."""
        printed = printed.replace(str(self.folder), TOUR)
        if _comparable(expected) == _comparable(printed):
            for name, now in zip(_NAMES.findall(expected), _NAMES.findall(printed), strict=True):
                assert self.names.setdefault(name, now) == now, f"{name} is another one now"
                assert list(self.names.values()).count(now) == 1, f"{name} has another name above"
            return expected
        known = {now: name for name, now in self.names.items()}
        return _NAMES.sub(lambda now: known.get(now[0], now[0]), printed)


def _comparable(text: str) -> str:
    return _MEASURED.sub("<measured>", _NAMES.sub("<name>", text))


@pytest.fixture(scope="module")
def tour(tmp_path_factory):
    return tmp_path_factory.mktemp("tour")


@pytest.fixture(scope="module")
def full_of_deletes(tmp_path_factory):
    """What the reader of the README has: a catalog `prod`, in it a table with ten equality deletes of 300 rows each."""
    lake = Lake(tmp_path_factory.mktemp("prod"), "prod")
    lake.catalog.create_namespace("db")
    lake.create("db.orders", pa.schema([("id", pa.int64()), ("status", pa.string())]))
    for first in range(0, 10_000, 1_000):
        lake.append("db.orders", pa.table({"id": list(range(first, first + 1_000)), "status": ["new"] * 1_000}))
        lake.delete_by_key("db.orders", {"id": list(range(first, first + 300))})
    return lake


@pytest.fixture(autouse=True)
def prod_is_configured(full_of_deletes, monkeypatch):
    described = {"TYPE": "sql", "URI": f"sqlite:///{full_of_deletes.database}", "WAREHOUSE": full_of_deletes.warehouse}
    for name, value in described.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{name}", value)
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())  # PyIceberg reads the environment once, when it is imported


def marked(path: Path):
    return pytest.param(path, marks=pytest.mark.processes) if path.name == "README.md" else path


@pytest.mark.slow
@pytest.mark.parametrize("path", [marked(page) for page in PAGES], ids=lambda path: path.name)
def test_blocks_run_and_print_what_they_show(path, tour, tmp_path, monkeypatch, capfd):
    folder = tour if path.name == "README.md" else tmp_path / "tour"
    if path.name != "README.md":
        shutil.copytree(_toured(tour, monkeypatch, capfd), folder)
    monkeypatch.chdir(folder)
    text = path.read_text()
    run = Page(text, capfd, folder, dispatches=True).run()
    if os.environ.get("DELTACOMPACT_WRITE_DOCS"):
        path.write_text(run)
    else:
        assert run == text


def _toured(tour, monkeypatch, capfd):
    """The folder in which the README's tour was done."""
    if not (tour / "lake").exists():
        monkeypatch.chdir(tour)
        Page((ROOT / "README.md").read_text(), capfd, tour).run()
    return tour


@pytest.mark.parametrize(
    "path",
    [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "benchmarks/README.md", *DOCS],
    ids=lambda path: path.name,
)
@pytest.mark.slow
def test_links_lead_somewhere(path):
    for target, anchor in _LINK.findall(path.read_text()):
        page = path.parent / target if target else path
        assert page.exists(), f"{target} does not exist"
        if anchor and page.suffix == ".md":
            headings = [re.sub(r"[^\w\- ]", "", each) for each in re.findall(r"^#+ (.+)$", page.read_text(), re.M)]
            assert anchor[1:] in [heading.lower().replace(" ", "-") for heading in headings], anchor


def test_no_documented_command_makes_the_plan_before_it_stale():
    block = re.search(r"^```sh\n(.*?)^```", (ROOT / "docs/iceberg.md").read_text(), re.M | re.S)
    compactions = re.findall(r"^deltacompact (?:plan|compact) .*", block[1], re.M)
    written = next(n for n, line in enumerate(compactions) if "--out plan.json" in line)
    assert "--from-plan plan.json" in compactions[written + 1]


ROOMS = [room for room in sorted((ROOT / "deltacompact").rglob("__init__.py")) if "start here" in room.read_text()]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.parent.name)
def test_the_map_of_a_room_names_every_module(room):
    modules = {path.stem for path in room.parent.glob("*.py")} - {"__init__"}
    cells = re.findall(r"(?:^|  )(\w+(?:, \w+)*)  ", room.read_text(), re.M)
    assert modules - {name for cell in cells for name in cell.split(", ")} == set()


WORDS_MAX = {"README.md": 1000, "ARCHITECTURE.md": 3000, "CHANGELOG.md": 800, "benchmarks/README.md": 2500}


@pytest.mark.parametrize("name", WORDS_MAX)
def test_short_documents_stay_short(name):
    assert words_of(ROOT / name) <= WORDS_MAX[name]


def test_all_pages_together_are_read_in_an_hour_or_two():
    assert sum(map(words_of, DOCS)) <= 18_500


def words_of(path: Path) -> int:
    """Words, and not the bars and signs of tables and blocks."""
    return sum(any(letter.isalnum() for letter in each) for each in path.read_text().split())


@pytest.mark.parametrize("drawing", sorted((ROOT / "docs").glob("*.svg")), ids=lambda path: path.name)
def test_a_drawing_is_shapes_and_words_for_light_and_dark(drawing):
    text = drawing.read_text()
    shapes = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
    assert "title" in shapes and "text" in shapes and not shapes & {"image", "script", "foreignObject"}
    assert "@media (prefers-color-scheme: dark)" in text and not re.search(r"(?:href|url)\(?[=\"']+https?:", text)
