"""What keeps an engine from reading a table of delta streams: what is told is what it finds, and the remedy helps."""

from __future__ import annotations

import duckdb
import polars
import pyarrow as pa
import pytest
from delta_publications import DeltaPublications
from iceberg_fixtures import lake  # noqa: F401  (fixture)
from publications import LOCAL, Publications, T, configure

import deltacompact
from deltacompact import InputError


def told(published, *engines):
    found = published.catalog.table(T).check(readable_by=list(engines))
    return {name: [obstacle.words for obstacle in obstacles] for name, obstacles in found.items()}


def with_dead_rows(published):
    published.append([{"id": number} for number in range(20)])
    published.compact()
    published.catalog.declare_readers(T, "vectors")
    published.append([{"id": 3}], "delete")
    deltacompact.compact(T, delta_catalog_client=published.catalog, settings=LOCAL)


def test_lists_of_files_have_no_dead_rows(lake, tmp_path):
    published = Publications(lake, tmp_path / "lake")
    with_dead_rows(published)
    published.append([{"id": 30}])
    unseen = "1 delta: compact folds them, until then they are not seen"
    assert told(published, "duckdb") == {"duckdb": [unseen, "1 file with dead rows: compact --purge rewrites them"]}
    published.compact(purge=True)
    assert told(published, "duckdb", "Polars") == {"duckdb": [], "Polars": []}
    files = published.catalog.compacted_files(T)
    assert duckdb.read_parquet(files).aggregate("count(*)").fetchall() == [(20,)]


def test_of_a_publication_the_iceberg_table_is_asked(lake, tmp_path, monkeypatch):
    configure(lake, monkeypatch)
    published = Publications(lake, tmp_path / "lake")
    with_dead_rows(published)
    published.publish()
    databricks = told(published, "databricks", "polars")
    assert databricks == {
        "databricks": ["1 position-delete file: compact --purge rewrites what they mark"],
        "polars": [],
    }
    published.compact(purge=True)
    assert told(published, "databricks") == {"databricks": []}


def test_of_a_delta_table_what_our_tests_read(tmp_path):
    published = DeltaPublications(tmp_path)
    published.append([{"id": 1}])
    published.compact()
    published.publish()
    assert told(published, "spark", "duckdb") == {"spark": [], "duckdb": []}
    (obstacle,) = told(published, "polars")["polars"]
    assert obstacle.startswith("paths outside of the Delta table's folder: ")
    with pytest.raises((FileNotFoundError, polars.exceptions.PolarsError)):
        polars.scan_delta(str(published.out)).collect()
    with pytest.raises(InputError, match="what snowflake reads of Delta tables is not known here"):
        told(published, "snowflake")
    with pytest.raises(InputError, match="'excel' is none of the engines"):
        told(published, "excel")
    assert pa.table(published.by_delta()).num_rows == 1
