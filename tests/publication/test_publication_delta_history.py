"""Random histories of a table that is published as Delta: after every compaction delta-rs reads its rows.

Without wider types, which delta-rs does not read.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from budgets import examples
from delta_publications import DeltaPublications
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from publication_histories import NO_SHRINK, keeps_up, steps

from deltacompact.publication.delta import table

STEPS = steps(["plain", "more", "nested", "day"])


@pytest.mark.slow
@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck), phases=NO_SHRINK)
@given(st.lists(STEPS, min_size=4, max_size=14), st.integers(1, 4))
def test_delta_rs_reads_the_rows_of_the_table_after_every_compaction(history, between_checkpoints):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "COMMITS_BETWEEN_CHECKPOINTS", between_checkpoints)
        published = DeltaPublications(Path(folder), ["day"])
        keeps_up(published, history)
        versions = [(action["txn"]["appId"], action["txn"]["version"]) for action in _all(published) if "txn" in action]
        assert len(versions) == len(set(versions))


def _all(published):
    return [action for commit in published.commits() for action in commit]
