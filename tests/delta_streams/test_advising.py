"""How files of delta streams lie: from footers, for compacted files and deltas of any format."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import deltacompact
from deltacompact.base.errors import InputError
from deltacompact.cli import run


@pytest.fixture
def orders(tmp_path):
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("orders", primary_keys=["id"])
    return catalog.table("orders")


def rows(first, last, **others):
    ids = list(range(first, last))
    return pa.table({"id": ids, "name": [f"n{number:03}" for number in ids], "tags": [[1]] * len(ids), **others})


def test_compacted_files_and_deltas_are_told_by_their_footers(orders):
    orders.append(rows(0, 50))
    orders.compact()
    orders.append(rows(20, 30))
    orders.append(rows(100, 200))
    found = orders.advise()
    assert (found.columns, found.files, found.partitions, found.can_cluster) == (("id",), 3, 1, False)
    (id_,) = found.outlooks
    assert id_.now.most == 2
    assert id_.now.value_share == pytest.approx(id_.now.mean / 3)
    assert id_.now.group_value_share == pytest.approx(id_.now.value_share)
    assert len(orders.advise("id,name").outlooks) == 3


def test_the_columns_by_which_a_table_is_clustered_are_those_of_interest(orders):
    orders.declare_cluster_by("day*3")
    assert orders.advise().columns == ("day",) and orders.advise("id").columns == ("id",)


def test_a_file_without_statistics_may_hold_any_value(orders, tmp_path):
    orders.append(rows(0, 10).drop_columns("tags"))
    csv = tmp_path / "more.csv"
    csv.write_text("id,name\n50,x\n")
    orders.append_files([str(csv)])
    found = orders.advise("id")
    assert found.notes == ("1 file without bounds of column 'id': readers open them always",)
    assert found.outlooks[0].now.most == 2


def test_values_of_all_types_have_an_order(orders):
    import datetime
    from decimal import Decimal

    others = {
        "day": [datetime.date(2026, 11, 1 + number) for number in range(4)],
        "at": [datetime.datetime(2026, 11, 1 + number, tzinfo=datetime.UTC) for number in range(4)],
        "price": [Decimal(number) / 4 for number in range(4)],
        "share": [float("nan"), 0.5, 1.0, 2.0],
        "flag": [False, False, True, True],
        "raw": [b"a", b"b", b"c", b"d"],
    }
    orders.append(rows(0, 4, **others))
    orders.append(rows(4, 8, **others))
    for name in others:
        assert orders.advise([name]).outlooks[0].now.most == 2, name
        assert orders.advise([name]).notes == (), name


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("nobody", "it has id, name, tags"),
        ("tags", "have no order"),
        ("tags.x", "top level"),
        ("id*0", "no number above 0"),
    ],
)
def test_bad_columns_are_one_line(orders, columns, says):
    orders.append(rows(0, 3))
    with pytest.raises(InputError, match=says):
        orders.advise(columns)


def test_the_command(orders, tmp_path, capsys):
    where = str(tmp_path / "lake")
    assert run(["advise", where, "orders"]) == 0
    orders.append(rows(0, 3))
    orders.append(rows(2, 5))
    capsys.readouterr()
    assert run(["advise", where, "orders", "--plot", str(tmp_path / "boxes.svg")]) == 0
    assert "id  2.0" not in capsys.readouterr().out
    assert run(["advise", where, "orders", "--columns", "name", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outlooks"][0]["now"]["most"] == 2
    assert run(["advise", where, "orders", "--reads", "7"]) == 2
    assert "is for tables of Iceberg catalogs" in capsys.readouterr().err
