"""Random histories of a source whose rows move between partitions: its mirror, which has no partitions, loses none.

put 1 into tue · mirror · delete 1 of mon · mirror · …      any step may end a batch, and any run of a mirror may die
"""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
import pytest
from budgets import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deltacompact import DeltaStreamCatalog, InputError, NotFoundError, Settings
from deltacompact.catalog.mirror import mirror
from deltacompact.catalog.mirror_sources import source_of
from deltacompact.storage.memory import MemoryStore

LOCAL = Settings(executor="local", local_threads=1)
WHERE = "day <> 'wed'"
DAYS, KEYS = st.sampled_from(["mon", "tue", "wed"]), st.integers(0, 2)
WRITES = st.tuples(st.sampled_from(["put", "gone", "gone"]), DAYS, KEYS)
OTHERS = st.tuples(st.sampled_from(["mirror", "mirror", "dies", "compact", "rollback"]), DAYS, KEYS)
STEPS = st.lists(st.one_of(WRITES, OTHERS), max_size=14)
BEGUN = [("put", "mon", 1), ("mirror", "mon", 1), ("put", "tue", 1)]
MOVED = [*BEGUN, ("mirror", "mon", 1), ("gone", "mon", 1)]
TWICE = [*BEGUN, ("mirror", "mon", 1), ("put", "wed", 1), ("mirror", "mon", 1), ("gone", "wed", 1)]


class Dies(Exception):
    pass


class Mirrored:
    """A source and its mirror. `given`: the rows at the end of the batch that the mirror gets."""

    def __init__(self, sort_keys: list[str], where: str | None) -> None:
        self.now_s, self.where, self.given = 1_000_000_000.0, where, list[dict[str, Any]]()
        self.catalog = DeltaStreamCatalog(MemoryStore(clock=lambda: self.now_s), clock=lambda: self.now_s)
        self.source = self.catalog.create_table("s", ["day"], ["id"])
        self.into = self.catalog.create_table("m", [], ["id"], sort_keys)

    def do(self, what: str, day: str, key: int) -> None:
        self.now_s += 1
        match what:
            case "put":
                self.source.append(pa.table({"id": [key], "at": [self.now_s % 7], "day": [day]}), {"day": day})
            case "gone":
                self.source.append(pa.table({"id": [key]}), {"day": day}, "delete")
            case "compact":
                (self.source if key else self.into).compact(settings=LOCAL)
            case "rollback":
                with contextlib.suppress(InputError, NotFoundError):  # nothing was before
                    self.source.rollback(str(1 + key), {"day": day})
            case "dies":
                with pytest.MonkeyPatch.context() as patched, contextlib.suppress(Dies):
                    patched.setattr(type(source_of(self.source)), "commit", _dies)
                    self.run()
            case "mirror":
                for _ in "12":  # a batch that was begun, which may say nothing, and what came since
                    self.run()
                if not twice(rows := self.rows()):
                    assert sorted(self.into.read().to_pylist(), key=str) == sorted(rows, key=str)

    def run(self) -> int:
        if not any(bookmark.next for bookmark in self.source.bookmarks()):
            self.given = self.rows()
        return mirror(self.source, self.into, "b", from_="1970-01-01", where=self.where)

    def rows(self) -> list[dict[str, Any]]:
        return [row for row in self.source.read().to_pylist() if self.where is None or row["day"] != "wed"]


def _dies(*_: Any) -> None:
    raise Dies


def twice(rows: list[dict[str, Any]]) -> bool:
    """Whether two rows have one key."""
    return len({row["id"] for row in rows}) < len(rows)


@pytest.mark.slow
@settings(max_examples=examples(60))
@example(MOVED, [], None)
@example(MOVED, ["at"], WHERE)
@example(TWICE, [], None)
@example([("gone", "mon", 0), ("dies", "mon", 0), ("put", "mon", 0)], [], None)
@given(STEPS, st.sampled_from([[], ["at"]]), st.sampled_from([None, WHERE]))
def test_a_mirror_without_the_partitions_of_its_source_has_its_rows(steps, sort_keys, where):
    lake = Mirrored(sort_keys, where)
    for step in [*steps, ("mirror", "mon", 0)]:
        try:
            lake.do(*step)
        except InputError as refused:
            assert twice(lake.given) and "is that of several rows of 's'" in str(refused)
            return
