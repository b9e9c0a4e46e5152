"""Docstrings of what users call: each has an example, which runs here, and says what each argument is.

All examples begin with the same two lakes, one of delta streams and one of Iceberg tables: each finds them whole.
"""

from __future__ import annotations

import doctest
import inspect
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_lake import Lake

import deltacompact
from deltacompact import DeltaStreamCatalog, DeltaStreamTable, IcebergCatalog, IcebergCatalogTable
from deltacompact.base.user_calls import arguments_of

FUNCTIONS = [
    *(deltacompact.compact, deltacompact.open_catalog, deltacompact.check, deltacompact.vacuum, deltacompact.changes),
    *(deltacompact.rollback, deltacompact.retract, deltacompact.retract_file),
]
TABLE_OF = {DeltaStreamCatalog: DeltaStreamTable, IcebergCatalog: IcebergCatalogTable}
"""The table whose arguments the calls of a catalog take, as the catalog's docstring says."""
EXAMPLES = [
    test
    for thing in (DeltaStreamTable, DeltaStreamCatalog, IcebergCatalogTable, IcebergCatalog, *FUNCTIONS)
    for test in doctest.DocTestFinder().find(thing, thing.__name__, module=False)
    if test.examples
]


def methods(kind):
    words = kind._words or [name for name in vars(kind) if not name.startswith("_")]
    return [name for name in words if not isinstance(inspect.getattr_static(kind, name), property)]


CALLS = [
    *((kind, getattr(kind, name)) for kind in (*TABLE_OF, *TABLE_OF.values()) for name in methods(kind)),
    *((deltacompact, function) for function in FUNCTIONS),
]


@pytest.fixture(scope="module")
def lakes(tmp_path_factory):
    """A folder with both lakes, and a copy of it."""
    folder = tmp_path_factory.mktemp("examples") / "lakes"
    orders = deltacompact.open_catalog(folder / "lake").create_table("orders", primary_keys=["id"])
    orders.append(pa.table({"id": [1, 2, 3], "status": ["new"] * 3}))
    orders.compact()
    orders.append(pa.table({"id": [1]}), operation="delete")
    lake = Lake(folder / "prod", "prod")
    lake.catalog.create_namespace("db")
    lake.create("db.orders", pa.schema([("id", pa.int64())]))
    lake.append("db.orders", pa.table({"id": [1, 2, 3]}))
    lake.delete_by_key("db.orders", {"id": [1]})
    return folder, shutil.copytree(folder, folder.with_name("copy"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
@pytest.mark.slow
def test_the_examples_run(lakes, example, monkeypatch, capsys):
    folder, copy = lakes
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    monkeypatch.chdir(folder)
    if example.name.startswith("Iceberg"):
        catalog, name = deltacompact.open_catalog(Lake(folder / "prod", "prod").catalog), "db.orders"
    else:
        catalog, name = deltacompact.open_catalog("lake"), "orders"
    modules = {"deltacompact": deltacompact, "pa": pa, "pq": pq}
    example.globs = {"catalog": catalog, "orders": catalog.table(name), **modules}
    assert doctest.DocTestRunner().run(example).failed == 0, capsys.readouterr().out


def test_every_call_on_a_table_has_an_example():
    have = {example.name for example in EXAMPLES}
    named = {f"{kind.__name__}.{name}" for kind in TABLE_OF.values() for name in methods(kind)}
    assert named - have == set()
    assert {function.__name__ for function in FUNCTIONS} <= have


@pytest.mark.parametrize(("kind", "call"), CALLS, ids=lambda thing: getattr(thing, "__name__", None))
def test_every_argument_is_described(kind, call):
    """In the docstring of the call or its class, or in one that these name in backticks."""
    text = told(kind, call)
    lines = r"^ *(?:\w+, )*{0}(?:, \w+)*  |`{0}`"
    assert [name for name in arguments_of(call) or () if not re.search(lines.format(name), text, re.M)] == []


def told(kind, call):
    texts = [inspect.getdoc(call), inspect.getdoc(kind)]
    if table := TABLE_OF.get(kind):
        texts += [inspect.getdoc(table), inspect.getdoc(getattr(table, call.__name__, None))]
    for _ in range(2):
        names = re.findall(r"`([\w.]+)`", "\n".join(filter(None, texts)))
        texts += [inspect.getdoc(found) for name in names if (found := named(name, table or kind)) is not None]
    return "\n".join(filter(None, texts))


def named(name, kind):
    """The call or class that a docstring names. A property and a plain value have nothing to say of arguments."""
    of_package = name.startswith("deltacompact.")
    words = name.removeprefix("deltacompact.").split(".")
    found = kind if hasattr(kind, words[0]) and not of_package else deltacompact
    for word in words:
        found = getattr(found, word, None)
    return found if callable(found) else None
