"""Lakes for the tests of this room, and what a rewrite wrote in them."""

from __future__ import annotations

import pytest
from iceberg_fixtures import glue_lake, lake, silence_is_short, spark_lake  # noqa: F401  (fixtures)

from deltacompact.iceberg_modes.rewrite import writing


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The outputs that a rewrite wrote in their old order, by path."""
    paths: list[str] = []
    step = writing.materialize

    def counted(store, task, path):
        paths.append(path())
        return step(store, task, path)

    monkeypatch.setattr(writing, "materialize", counted)
    return paths
