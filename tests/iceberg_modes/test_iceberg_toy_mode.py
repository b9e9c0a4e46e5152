"""A new mode is a folder and a line: whatever knows modes knows the toy mode once it is on the list."""

import json
from dataclasses import asdict

import pytest
from iceberg_lake import SETTINGS
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from toy_mode import COPY

import deltacompact
from deltacompact.base.errors import InputError
from deltacompact.catalog.iceberg import IcebergCatalog
from deltacompact.cli.iceberg_options import option_sections
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes import modes
from deltacompact.iceberg_modes.driver import ModeRun
from deltacompact.storage.identity import file_name

T = "ns.t"


@pytest.fixture
def catalog(lake, monkeypatch):
    monkeypatch.setattr(modes, "MODES", (*modes.MODES, COPY))
    lake.create(T, Schema(NestedField(1, "id", LongType())))
    for number in range(3):
        lake.append(T, [{"id": number}])
    return IcebergCatalog(lake.catalog)


def copied(lake):
    """How many data files are copies: they have the name of a session. All rows must be there."""
    assert sorted(row["id"] for row in lake.rows(T)) == [0, 1, 2]
    return sum(file_name(entry.file.path)[32] == "-" for entry in lake.state(T).data)


def compact(catalog, **others):
    return deltacompact.compact(T, delta_catalog_client=catalog, settings=SETTINGS, **others)


def test_compact_plans_writes_and_commits_it(lake, catalog):
    result = compact(catalog, mode="copy", options={"most-files": "2"})
    assert (len(result.snapshots), copied(lake)) == (1, 2)
    with pytest.raises(InputError, match="unknown option 'most': did you mean 'most-files'"):
        compact(catalog, mode="copy", options={"most": 1})
    assert "most-files" in str(option_sections(modes.names()))


def test_its_plan_is_a_document_that_is_carried_out(lake, catalog):
    plan = catalog.planned(COPY, T, {"most-files": 1})
    assert catalog.expected(plan).seconds > 0 and asdict(plan)["options"] == {"most": 1}
    catalog.run(COPY, T, settings=SETTINGS, plan=json.dumps(COPY.steps().document(plan)))
    assert copied(lake) == 1


@pytest.mark.parametrize("mode", ["copy", "rewrite"])
def test_what_it_had_written_when_it_died_is_committed_by_the_next_call(lake, catalog, mode):
    def die():
        raise KeyboardInterrupt

    table = IcebergTable.load(lake.catalog, T)
    with pytest.raises(KeyboardInterrupt, match="3 of 3 groups written and not committed"):
        ModeRun(table, "main", COPY.read_options({}, {}), SETTINGS, before_commit=die, mode=COPY).run()
    assert copied(lake) == 0
    result = compact(catalog, mode=mode)
    assert copied(lake) == 3
    assert result.resumed == 3 if mode == "copy" else "had written a copy: it is snapshot" in str(result.notes)
