"""Bars of several partitions that are compacted at a time, and lines where there is no terminal."""

from __future__ import annotations

import io
import re

import pyarrow as pa
from rich.console import Console

import deltacompact
from deltacompact import cli
from deltacompact.base.events import (
    GroupsCommitted,
    GroupWritten,
    ModeFinished,
    ModeStarted,
    RoundCompleted,
    SessionFinished,
    SessionStarted,
    StageFinished,
    StageStarted,
    TaskFinished,
)
from deltacompact.base.model import Partition
from deltacompact.cli.bars import BARS_MAX, Bars
from deltacompact.cli.progress import PARTITIONS_LOGGED, Lines, progress


def day(number: int | str) -> Partition:
    return Partition((("day", str(number)),))


def bars_on(console: Console) -> Bars:
    return Bars(console, Lines(console))


def screen(bars: Bars) -> list[str]:
    """The lines that the bars draw now."""
    console = Console(file=io.StringIO(), width=110, force_terminal=False, color_system=None)
    console.print(bars.get_renderable())
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]


def test_each_running_partition_has_a_bar_of_its_own() -> None:
    bars = bars_on(Console(file=io.StringIO(), force_terminal=True))
    for number in (1, 2):
        bars.draw(StageStarted("t", day(number), "hash_bucket", 4, 100 * number))
    bars.draw(TaskFinished("t", day(2), "hash_bucket", 50))
    first, second = screen(bars)
    assert "day=1 hash_bucket (4 tasks)" in first and "0/100" in first
    assert "day=2 hash_bucket (4 tasks)" in second and "50/200" in second
    bars.draw(StageFinished("t", day(1), "hash_bucket", 0.1))
    bars.draw(StageStarted("t", day(1), "dedupe", 1, 100))
    assert [re.split(r" {2,}", line)[0] for line in screen(bars)] == [
        "day=2 hash_bucket (4 tasks)",
        "day=1 dedupe (1 task)",
    ]


def test_a_stage_of_one_task_does_not_stay_at_nothing() -> None:
    bars = bars_on(Console(file=io.StringIO(), force_terminal=True))
    bars.draw(StageStarted("t", day(1), "materialize", 1, 9000))
    (line,) = screen(bars)
    assert "9,000 rows" in line and "0/9000" not in line and not bars.tasks[0].finished
    bars.draw(TaskFinished("t", day(1), "materialize", 9000))
    bars.draw(StageFinished("t", day(1), "materialize", 0.1))
    assert screen(bars) == []


def test_a_name_breaks_no_bar() -> None:
    bars = bars_on(Console(file=io.StringIO(), force_terminal=True))
    bars.draw(StageStarted("t", day("\x1b[2J\n" + "x" * 300), "dedupe", 4, 100))
    (line,) = screen(bars)
    assert line.startswith(r"day=\x1b[2J\nxxx") and "x" * 60 not in line


def test_a_session_that_fails_in_a_stage_leaves_no_bar() -> None:
    bars = bars_on(Console(file=io.StringIO(), force_terminal=True))
    bars.draw(StageStarted("t", day(1), "dedupe", 4, 100))
    bars.draw(SessionFinished("t", day(1), "InputError: no", 0))
    assert screen(bars) == []


def test_many_partitions_are_counted() -> None:
    bars = bars_on(Console(file=io.StringIO(), force_terminal=True))
    for number in range(32):
        bars.draw(StageStarted("t", day(number), "materialize", 1, 10))
    lines = screen(bars)
    assert len(lines) == BARS_MAX + 1 and lines[-1] == f"and {32 - BARS_MAX} partitions more"
    bars.draw(StageFinished("t", day(0), "materialize", 0.1))
    assert screen(bars)[0].startswith("day=1 ") and f"day={BARS_MAX} " in screen(bars)[BARS_MAX - 1]


def test_without_a_terminal_lines_name_their_partition() -> None:
    console = Console(file=io.StringIO(), width=200)
    with progress(console) as sink:
        sink(SessionStarted("t", day(1), "5c", 1, 10, "1 delta"))
        sink(StageStarted("t", day(1), "dedupe", 1, 10))
        sink(SessionStarted("t", day(2), "5d", 1, 10, "2 deltas"))
        sink(SessionFinished("t", day(2), "InputError: no", 0))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        "t day=1: 1 delta, 10 rows in 1 round, session 5c",
        "t day=2: 2 deltas, 10 rows in 1 round, session 5d",
        "t day=2: failed",
    ]


def test_of_many_partitions_the_first_are_named_the_others_counted_and_failures_always_said() -> None:
    console, now_s = Console(file=io.StringIO(), width=200), [0.0]
    lines = Lines(console, lambda: now_s[0])
    for number in range(1_000):
        now_s[0] += 0.02
        lines(SessionStarted("t", day(number), "5c", 1, 10, "1 delta"))
        lines(RoundCompleted("t", day(number), 1, 1, 5))
        lines(SessionFinished("t", day(number), "InputError: no" if number == 777 else None, 5))
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue().splitlines()
    assert said[: 2 * PARTITIONS_LOGGED : 2] == [
        f"t day={number}: 1 delta, 10 rows in 1 round, session 5c" for number in range(PARTITIONS_LOGGED)
    ]
    assert said[2 * PARTITIONS_LOGGED :] == ["t: 501 partitions done", "t day=777: failed"]


def test_a_rewrite_has_one_bar_with_its_groups() -> None:
    bars = bars_on(Console(file=io.StringIO(), force_terminal=True))
    everywhere = Partition()
    bars.draw(ModeStarted("ns.t", everywhere, "rewrite", 3, 100, 5000))
    assert "ns.t (3 groups)" in screen(bars)[0]
    bars.draw(GroupWritten("ns.t", everywhere, 1, 3, 40, 2000))
    (line,) = screen(bars)
    assert "ns.t (1 of 3 groups)" in line and "40/100" in line
    bars.draw(GroupsCommitted("ns.t", everywhere, 7, 1))
    bars.draw(ModeStarted("ns.t", everywhere, "rewrite", 1, 60, 3000))  # groups that others touched are done again
    (line,) = screen(bars)
    assert "ns.t (1 group)" in line and "0/60" in line
    bars.draw(ModeFinished("ns.t", everywhere, "rewrite", None))
    assert screen(bars) == []


def test_brackets_in_names_are_no_markup_on_a_terminal(tmp_path, monkeypatch) -> None:
    """compact had committed, and ended with status 1."""
    from deltacompact.cli import console

    terminal = Console(stderr=True, force_terminal=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
    monkeypatch.setattr(console, "err", terminal, raising=False)
    catalog = deltacompact.open_catalog(tmp_path)
    catalog.create_table("[/t]", ["day"], primary_keys=["id"])
    catalog.append("[/t]", pa.table({"id": [1, 2]}), {"day": "[/x]"})
    for command in (["compact"], ["compact", "--json"], ["check"], ["rehash", "--hash-buckets", "2"], ["vacuum"]):
        name, *options = command
        assert cli.run([name, str(tmp_path), "[/t]", *options]) == 0, command
