"""The benchmark of change feeds: each case has the rows that were changed, and is measured beside a scan."""

from __future__ import annotations

import pytest

from benchmarks import changes


@pytest.mark.slow
def test_each_feed_has_the_rows_that_were_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(changes, "FILES", 12)
    told: list[str] = []
    found = changes.measured(tmp_path / "table", 12_000, 1, told.append)
    assert list(found) == [changes.SCAN, *changes.CASES] and len(told) == 2 * len(found)
    monkeypatch.setattr(changes, "DEAD_SHARE", 0.01)
    with pytest.raises(ValueError, match="together: 10 rows, and not 120"):
        changes.measured(tmp_path / "table", 12_000, 1, told.append)
