"""Random histories of a published table: after every compaction PyIceberg reads what `catalog.read` has."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path

import pytest
from budgets import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from iceberg_lake import Lake
from publication_histories import NO_SHRINK, died, keeps_up, steps
from publications import LOCAL, Publications, T, configure

import deltacompact
from deltacompact.publication import publication
from deltacompact.publication.publication import show_compacted

STEPS = steps(["plain", "wide", "more", "nested", "day"])


@pytest.mark.slow
@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck), phases=NO_SHRINK)
@given(st.lists(STEPS, min_size=4, max_size=14))
def test_the_publication_has_the_rows_of_the_table_after_every_compaction(history):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        lake = Lake(Path(folder), f"lake{uuid.uuid4().hex[:8]}")
        configure(lake, patch)
        published = Publications(lake, Path(folder) / "delta", ["day"])
        keeps_up(published, history)


def test_a_settled_publication_asks_for_no_partition_in_vain(lake, tmp_path, monkeypatch):
    """show_compacted is told which partitions a job had: of others it neither adds nor removes files."""
    configure(lake, monkeypatch)
    published = Publications(lake, tmp_path / "delta", ["day"])
    for day in "ab":
        published.append([{"id": 1}], day=day)
    published.compact()
    published.publish()
    for day in "ab":
        published.append([{"id": 2}], day=day)
    with monkeypatch.context() as patch:
        patch.setattr(publication, "show_compacted", died)
        published.compact()
    only = [published.catalog.partition(T, {"day": "a"})]
    result = show_compacted(published.catalog, T, published.uri, only)
    assert result.error is None
    assert result.files_added > 0
    assert [row["id"] for row in published.shown() if row["day"] == "b"] == [1]
    deltacompact.compact(T, delta_catalog_client=published.catalog, settings=LOCAL)
    assert published.shown() == published.compacted()
