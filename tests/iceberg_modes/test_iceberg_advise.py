"""Advice about clustering: depth from bounds, what a tree over some rows would make, after how many reads it pays."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pytest
from iceberg_lake import Lake, local_path

from deltacompact.base.errors import InputError
from deltacompact.base.settings import Settings
from deltacompact.catalog.iceberg import IcebergCatalog
from deltacompact.cli import advise as advise_command
from deltacompact.cli import run
from deltacompact.iceberg.table.table_state import StateReader
from deltacompact.layout.boxes import Boxes
from deltacompact.reports.advice import advice_lines

T = "ns.t"
SCHEMA = pa.schema(
    [
        ("day", pa.int64()),
        ("customer", pa.string()),
        ("place", pa.struct([("x", pa.int32())])),
        ("tags", pa.list_(pa.int64())),
    ]
)
FILES = 12


def rows(days, seed=0, count=600):
    rng = np.random.default_rng(seed)
    customers = [f"https://www.example.com/customers/{number:06}" for number in rng.integers(0, 10**6, count)]
    columns = [np.sort(rng.integers(*days, count)), customers, [None] * count, [None] * count]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A table whose files follow each other by day, and lie over each other by customer."""
    lake = Lake(tmp_path_factory.mktemp("lake"))
    lake.create(T, SCHEMA, properties={"write.metadata.metrics.default": "full"})
    for number in range(FILES):
        lake.append(T, rows((number * 10, number * 10 + 10), number))
    with lake.catalog.load_table(T).transaction() as change:
        change.set_properties({"write.target-file-size-bytes": "6000"})
    return lake


@pytest.fixture
def table(lake):
    return IcebergCatalog(lake.catalog).table(T)


def test_without_columns_the_depth_of_all_is_told(table):
    found = table.advise()
    assert found.columns == ("day", "customer")
    day, customer = (outlook.now for outlook in found.outlooks)
    assert day.most == 1
    assert customer.most == FILES
    assert customer.value_share > 0.9
    assert "name columns" in advice_lines(found)[-1]


def test_files_that_lie_well_are_left_alone(table):
    found = table.advise("day")
    assert found.rewrite_files == 0
    assert not found.worth_it
    *_, note, verdict = advice_lines(found)
    assert "nothing to do: no files overlap" in verdict
    assert "divided anew with rewrite-all=true: a read takes 0.01 core-seconds less" in note


def test_clustering_two_columns_is_foreseen_and_pays_after_some_reads(table):
    found = table.advise("day,customer", reads=10**9)
    day, customer, both = found.outlooks
    assert found.rewrite_files == FILES  # day parts them, but each has all customers
    assert found.worth_it
    assert customer.clustered.value_share < customer.now.value_share / 2
    assert day.clustered.value_share > day.now.value_share
    assert both.now.group_value_share == pytest.approx(both.now.value_share, abs=0.03)  # a row group in each file


def test_files_over_each_other_pay_for_being_parted(table):
    found = table.advise(["customer"])
    assert (found.rewrite_files, found.worth_it) == (FILES, True)
    (customer,) = found.outlooks
    assert customer.now.value_share > 0.9
    assert customer.clustered.value_share < 0.2
    assert found.pays_after <= 100
    assert not table.advise("customer", reads=found.pays_after - 1).worth_it if found.pays_after > 1 else True
    lines = advice_lines(found, 0.05)
    assert "USD" in lines[-2]
    assert "worth it for 100" in lines[-1]


def test_the_expectation_holds_for_files_that_are_divided_so(table, lake):
    """The tree that is foreseen, made real: files sorted by customer."""
    expected = table.advise("customer").outlooks[0].clustered
    lake.create("ns.sorted", SCHEMA, properties={"write.metadata.metrics.default": "full"})
    everything = pa.concat_tables([rows((number * 10, number * 10 + 10), number) for number in range(FILES)])
    everything = everything.sort_by("customer")
    files = round(1 / expected.value_share)
    per_file = everything.num_rows // files
    for number in range(files):
        lake.append("ns.sorted", everything.slice(number * per_file, per_file))
    now = IcebergCatalog(lake.catalog).table("ns.sorted").advise("customer")
    assert now.rewrite_files == 0
    assert now.outlooks[0].now.value_share == pytest.approx(expected.value_share, rel=0.3)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("nobody", "it has day, customer"),
        ("custome", "did you mean 'customer'"),
        ("place.x", "inside of a struct"),
        ("tags", "has no order"),
        ("day*x", "no number above 0"),
        ("day,day", "twice"),
        ("", "names some|is empty"),
        ("a,b,c,d,e", "at most 4"),
    ],
)
def test_bad_columns_are_one_line(table, columns, says):
    with pytest.raises(InputError, match=says) as raised:
        table.advise(columns)
    assert "\n" not in str(raised.value)


def test_of_a_column_without_bounds_clustering_is_foreseen_with_a_note(tmp_path):
    lake = Lake(tmp_path)
    lake.create(T, SCHEMA, properties={"write.metadata.metrics.default": "none"})
    table = IcebergCatalog(lake.catalog).table(T)
    assert table.advise("day").files == 0
    lake.append(T, rows((0, 10)))
    assert table.advise().outlooks == ()
    lake.append(T, rows((5, 15), 1))
    found = table.advise("day")
    assert "no file has bounds of column 'day': readers open all by it now" in found.notes[0]
    assert found.rewrite_files == 2 and found.outlooks[0].now.value_share == 1.0
    table.compact(options={"cluster-by": "day"}, settings=Settings(executor="local", local_threads=1))
    assert not any("bounds" in note for note in table.advise("day").notes)


def test_readers_skip_files_of_nulls_and_nan_by_their_counts(tmp_path):
    lake = Lake(tmp_path)
    lake.create(T, pa.schema([("share", pa.float64()), ("note", pa.string())]))
    for share in (None, float("nan"), 1.0, 2.0):
        lake.append(T, [{"share": share, "note": None}] * 9)
    table = IcebergCatalog(lake.catalog).table(T)
    assert table.advise("share").notes[0] == "1 file without bounds of column 'share': readers always open them"
    lake.rewrite(T, rewrite_all=True, max_file_group_input_files=1)  # PyIceberg does not count NaN
    found = table.advise("share,note")
    assert "bounds" not in "".join(found.notes)
    share = found.outlooks[0].now
    assert share.group_value_share == share.value_share == 0.25
    assert table.advise("note").rewrite_files == 0  # nobody is told to rewrite it for bounds that it cannot have


def test_the_columns_of_the_table_are_the_default(tmp_path):
    lake = Lake(tmp_path)
    lake.create(T, SCHEMA, properties={"deltacompact.cluster-by": "customer*2"})
    lake.append(T, rows((0, 10)))
    assert IcebergCatalog(lake.catalog).table(T).advise().columns == ("customer",)


@pytest.mark.slow
def test_the_command_prints_draws_and_writes_json(table, lake, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("deltacompact.cli.arguments._iceberg", lambda *_: IcebergCatalog(lake.catalog), raising=False)
    monkeypatch.setattr(
        "deltacompact.catalog.iceberg.IcebergCatalog.at", classmethod(lambda cls, uri: IcebergCatalog(lake.catalog))
    )
    picture = tmp_path / "boxes.svg"
    arguments = ["advise", "iceberg://lake", T, "--columns", "customer,day"]
    assert run([*arguments, "--plot", str(picture)]) == 0
    assert "together" in capsys.readouterr().out
    assert picture.read_text().count("<path") > FILES
    assert run([*arguments, "--json", "--usd-per-core-hour", "0.05"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["outlooks"]) == 3
    assert document["expected"]["usd"] >= 0
    assert run([*arguments, "--plot", str(tmp_path / "boxes.gif")]) == 2
    reports = tmp_path / "reports.jsonl"
    lines = [
        {"table-name": "lake.ns.t", "filter": {"type": "eq", "term": name}} for name in ("customer", "gone", "tags")
    ]
    reports.write_text("\n".join(["no json", *map(json.dumps, lines)]))
    assert run(["advise", "iceberg://lake", T, "--scan-reports", str(reports), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["columns"] == ["customer"]
    reports.write_text("no json")
    assert run(["advise", "iceberg://lake", T, "--scan-reports", str(reports)]) == 2
    assert "no read in 1 scan report has a predicate on a column of table 'ns.t'" in capsys.readouterr().err
    assert isinstance(table.advise("day").boxes, Boxes)
    assert advise_command.advise.name == "advise"


def test_files_of_a_format_that_we_do_not_read_are_named_as_such(lake, monkeypatch):
    """They passed for damaged Parquet files."""
    lake.create("ns.orc", pa.schema([("id", pa.int64())]))
    lake.append("ns.orc", [{"id": 1}])
    (entry,) = lake.state("ns.orc").data
    orc.write_table(pa.table({"id": [1]}), local_path(entry.file.path))
    read = StateReader.read

    def foreign(self, *given):
        return replace(read(self, *given), data=(replace(entry, file=replace(entry.file, file_format="ORC")),))

    monkeypatch.setattr(StateReader, "read", foreign)
    with pytest.raises(InputError, match=r"\.parquet is ORC: only Parquet files can be read"):
        IcebergCatalog(lake.catalog).table("ns.orc").advise("id")
