"""Everything a table can do, in any order, against a fold written from the design: one machine for all features.

    append 3 files · compact in rounds of 2 rows · rewrite_dead_fraction 0.5 · a put fails · append · resume as ORC ·
    rehash · roll back to version 1 · retract · three days pass · vacuum · compact into another table · publish · …

After each step the table, every version that is still retained, and the destination hold what the oracle says, and
`check` finds nothing. The actors of `lake` act on table and model; the machine only chooses what happens next.

Limits that only large tables meet are so low that runs, relocations, deletion vectors, kept and copied rows, exchange
files, checkpoints and stubs all occur: the test at the end counts them. What the machine found before stands in the
test files of the features, one plain test each.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
from budgets import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from lake import draws
from lake.advisor import HOWS
from lake.lake import SMALL, Lake, rows
from lake.limits import LakeLimits
from lake.model import Shape
from lake.world import HOUR_S, LOCAL
from stores import Crash, FailsAt

from deltacompact.base.errors import StoreError

PLACES = st.integers(0, 60)
CHOICES = st.integers(0, 5)
SOMETIMES = st.sampled_from([False, False, True])


class FeatureMachine(RuleBasedStateMachine):
    """One lake, and whatever may be asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.lake: Lake | None = None
        self.last: dict[str, Any] = {}

    @initialize(
        shape=draws.shapes(),
        limits=draws.LIMITS,
        first=st.sampled_from([[], list(range(12)), list(range(0, 40, 3))]),
        groups=st.sampled_from([1, 2, 131_072]),
    )
    def begin(self, shape: Shape, limits: LakeLimits, first: list[int], groups: int) -> None:
        """Often with some rows that are compacted, so that later changes are small."""
        self.lake = Lake(shape, limits)
        if first:
            for day in shape.days:
                self.lake.writer.append(day, "upsert", [draws.first_rows(shape, first)])
            self.lake.compactor.compact(settings=dataclasses.replace(LOCAL, row_group_rows=groups))

    def teardown(self) -> None:
        if self.lake is not None:
            self.lake.world.close()

    @property
    def begun(self) -> list[str | None]:
        """The partitions that hold something."""
        return [day for day, stream in self.lake.world.streams.items() if stream.begun] if self.lake else []

    def _day(self, data: st.DataObject) -> str | None:
        return data.draw(st.sampled_from(self.begun))

    # The writer

    def _append(self, data: st.DataObject, **how: Any) -> None:
        delta = draws.delta(data, self.lake.world.shape)
        how.setdefault("token", f"token {self.lake.world.count()}" if data.draw(st.booleans()) else None)
        self.lake.writer.append(**delta, **how)

    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        self._append(data)

    @rule(data=st.data(), at=PLACES, after=st.booleans(), dies=st.booleans())
    def append_while_the_store_fails(self, data: st.DataObject, at: int, after: bool, dies: bool) -> None:
        fails = FailsAt(at % 12, after=after, error=Crash if dies else StoreError)
        self._append(data, fails=fails, token=f"certain:{self.lake.world.count()}")

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), at=PLACES)
    def append_while_something_happens(self, data: st.DataObject, at: int) -> None:
        compactor = self.lake.compactor
        compacting = functools.partial(compactor.compact, **data.draw(draws.COMPACTIONS))
        # No days pass: what is suspended for days inside its last request may commit what a vacuum took, a known limit.
        act = data.draw(st.sampled_from([compacting, lambda: compactor.rehash(2)]))
        self._append(data, meanwhile=(at % 12, act))

    @precondition(lambda self: self.lake and self.lake.writer.tokens)
    @rule(choice=CHOICES)
    def repeat_a_token(self, choice: int) -> None:
        self.lake.writer.repeat(choice)

    # The compactor

    def _arguments(self, data: st.DataObject) -> dict[str, Any]:
        """New ones, or those of before, which resume what was interrupted."""
        if not self.last or data.draw(st.booleans()):
            self.last = data.draw(draws.COMPACTIONS)
            if self.lake.world.shape.plain:
                self.last["compacted_file_content_type"] = data.draw(draws.CONTENT_TYPES)
        return self.last

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), destination=SOMETIMES)
    def compact(self, data: st.DataObject, destination: bool) -> None:
        day = data.draw(st.sampled_from([None, *self.begun]))
        self.lake.compactor.compact(day, destination, **self._arguments(data))

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), at=PLACES, after=st.booleans(), dies=st.booleans(), destination=SOMETIMES)
    def compact_while_the_store_fails(
        self, data: st.DataObject, at: int, after: bool, dies: bool, destination: bool
    ) -> None:
        fails = FailsAt(at, after=after, error=Crash if dies else StoreError)
        self.lake.compactor.compact(destination=destination, fails=fails, **self._arguments(data))

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), at=PLACES, destination=SOMETIMES)
    def compact_while_something_happens(self, data: st.DataObject, at: int, destination: bool) -> None:
        lake = self.lake
        day, choice = self._day(data), data.draw(CHOICES)
        acts: dict[str, Callable[[], Any]] = {
            "append": lambda: self._append(data),
            "retract": lambda: lake.historian.retract(day, choice),
            "append, retract": lambda: (self._append(data), lake.historian.retract(day, -1)),
            "rehash": lambda: lake.compactor.rehash(1 + choice),
            "rollback": lambda: lake.historian.rollback(day, choice),
            "vacuum": lake.vacuum.run_days_later,
        }
        act = acts[data.draw(st.sampled_from(sorted(acts)))]
        lake.compactor.compact(destination=destination, meanwhile=(at, act), **self._arguments(data))

    @rule(data=st.data(), purge=st.sampled_from([False, False, False, True]))
    def append_and_compact(self, data: st.DataObject, purge: bool) -> None:
        """What a table sees most often; its index gets a run, its files deletion vectors and copied rows."""
        self._append(data)
        if self.begun:
            how = data.draw(draws.OFTEN)
            self.lake.compactor.compact(purge=purge, **how)

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), destination=st.booleans())
    def compact_again_as_before(self, data: st.DataObject, destination: bool) -> None:
        self.lake.compactor.compact(destination=destination, **self.last)

    @precondition(lambda self: self.begun)
    @rule(buckets=st.integers(1, 5))
    def rehash(self, buckets: int) -> None:
        self.lake.compactor.rehash(buckets)

    # The vacuum, the historian, the publisher, the reader

    @precondition(lambda self: self.begun)
    @rule(hours=st.sampled_from([0, 20, 40, 80]), force=SOMETIMES)
    def vacuum(self, hours: int, force: bool) -> None:
        self.lake.world.now_s += hours * HOUR_S
        self.lake.vacuum.run(force)

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), choice=CHOICES)
    def rollback(self, data: st.DataObject, choice: int) -> None:
        self.lake.historian.rollback(self._day(data), choice)

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), choice=CHOICES)
    def retract(self, data: st.DataObject, choice: int) -> None:
        self.lake.historian.retract(self._day(data), choice)

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def restate(self, data: st.DataObject) -> None:
        files = draws.files(data, self.lake.world.shape, "upsert", data.draw(st.integers(1, 2)))
        self.lake.historian.restate(self._day(data), files)

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        self.lake.publisher.publish(self._day(data))

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def export(self, data: st.DataObject) -> None:
        plain = self.lake.world.shape.plain
        self.lake.publisher.export(self._day(data), data.draw(st.sampled_from(draws.EXPORTS[: 4 if plain else 2])))

    @precondition(lambda self: self.begun)
    @rule(how=st.sampled_from(HOWS), choice=PLACES, cut=PLACES)
    def spoil_advice(self, how: str, choice: int, cut: int) -> None:
        self.lake.advisor.spoil(how, choice, cut)

    @rule()
    def another_process(self) -> None:
        self.lake.world.catalog = self.lake.world.fresh()

    @precondition(lambda self: self.begun)
    @rule(choice=CHOICES)
    def look(self, choice: int) -> None:
        self.lake.reader.verify(choice)

    def check_invariants(self, *step: Any, **more: Any) -> None:
        if self.lake is not None and self.begun:
            self.lake.reader.verify(len(self.lake.world.seen))
        super().check_invariants(*step, **more)


@pytest.mark.slow
class TestFeatures(FeatureMachine.TestCase):
    settings = settings(
        max_examples=examples(10),
        stateful_step_count=20,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


def test_small_limits_bring_about_what_only_large_tables_see() -> None:
    with Lake(SMALL, LakeLimits(remote=True, entry_bytes_max=1000)) as lake:
        append, compact, verify = lake.writer.append, lake.compactor.compact, lake.reader.verify
        how = {"rows_per_compacted_file": 12, "settings": dataclasses.replace(LOCAL, row_group_rows=2)}
        marking = {**how, "settings": dataclasses.replace(LOCAL, row_group_rows=2, rewrite_dead_fraction=0.5)}
        rounds = {**how, "settings": dataclasses.replace(LOCAL, row_group_rows=2, rows_per_round=1)}
        append(None, "upsert", rows(*range(12)), token="etl:1")
        compact(**how)
        verify()
        for arguments in (marking, how, how):
            append(None, "delete", rows(len(lake.world.streams[None].events) + 2, s=2))
            compact(**arguments)
            verify()
        for key in (20, 21, 22, 0):
            append(None, "upsert", rows(key, s=3))
        for operation in range(100, 220, 20):  # not every operation that fails ends a session
            compact(fails=FailsAt(operation), **rounds)
        compact(**rounds)
        verify()
        clustered = {**how, "cluster_by": "s,note"}
        compact(**{**clustered, "rows_per_compacted_file": 4})
        for keys in ((30, 1), (2, 31)):
            append(None, "upsert", rows(*keys, s=4))
            compact(**clustered)
            verify()
        compact(destination=True, **how)
        append(None, "upsert", rows(30))
        lake.historian.retract(None, 0)
        lake.writer.repeat(0)
        lake.compactor.rehash(3)
        lake.historian.rollback(None, 1)
        verify()
        compact(destination=True, **how)
        compact(purge=True, **how)
        compact(**how)
        lake.publisher.publish(None)
        lake.publisher.export(None, ".csv")
        lake.vacuum.run_days_later()
        lake.vacuum.run()
        lake.historian.restate(None, rows(1))
        verify()
        seen = lake.world.seen
        assert [name for name, count in seen.items() if not count and name != "fenced"] == []
        assert {"runs", "relocations", "rows copied", "files marked", "delta files kept", "exchanged"} <= {*seen}
