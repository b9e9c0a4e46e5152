"""What becomes of a table's files, situation by situation: pictures that are compared with those in golden/layouts.

    golden/layouts/every_row_is_dead.txt      the files, the plan, the result, the files again, the table

A changed decision shows as a diff of a picture. `UPDATE_GOLDEN=1 pytest tests/planning/test_layouts.py` draws them;
read the diff before you commit it. How to read a picture stands in layouts.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from layouts import Story

from deltacompact import ContentType

GOLDEN = Path(__file__).parents[1] / "golden" / "layouts"
STORIES: dict[str, Callable[[], Story]] = {}


def story(tell: Callable[[], Story]) -> Callable[[], Story]:
    STORIES[tell.__name__] = tell
    return tell


# --- which files are written -----------------------------------------------------------------------------------------


@story
def first_compaction() -> Story:
    """Two deltas with some keys in common become files of at most 100 rows."""
    table = Story()
    table.upsert(range(100))
    table.upsert(range(80, 230))
    table.scene()
    return table


@story
def tiny_delta_onto_a_large_base() -> Story:
    """One row of 400 changes: one file is rewritten, the index gets a run and a relocation."""
    table = large_base()
    table.upsert([150])
    table.scene()
    return table


@story
def nothing_but_deletes() -> Story:
    """Rows of two files die: the others are kept."""
    table = large_base()
    table.delete([*range(20, 30), 399])
    table.scene()
    return table


@story
def every_row_is_dead() -> Story:
    """A version without files."""
    table = large_base()
    table.delete(range(400))
    table.scene()
    return table


@story
def every_row_of_one_file_is_dead() -> Story:
    """The file goes, and nothing is written."""
    table = large_base()
    table.delete(range(100, 200))
    table.scene()
    return table


@story
def rows_that_nobody_has() -> Story:
    """Deletes of keys that do not exist change no file."""
    table = large_base()
    table.delete(range(1000, 1010))
    table.scene()
    return table


@story
def small_files_are_merged() -> Story:
    """A small base file and a small delta become one file; the large ones are kept."""
    table = Story()
    table.upsert(range(100))
    table.compact()
    table.upsert(range(100, 130))
    table.compact()
    table.upsert(range(130, 150))
    table.scene()
    return table


@story
def large_delta_is_kept() -> Story:
    """A delta file that looks like a compacted one and lost no row is kept where it is."""
    table = Story()
    table.upsert(range(100))
    table.upsert(range(1000, 3150))
    table.scene(rows_per_compacted_file=4000)
    return table


@story
def large_delta_that_lost_a_row_is_rewritten() -> Story:
    """As before, but a delete comes after it."""
    table = Story()
    table.upsert(range(2150))
    table.delete([7])
    table.scene(rows_per_compacted_file=4000)
    return table


@story
def one_huge_file_is_divided() -> Story:
    """A file of 400 rows loses one: what is written keeps to today's limit of 100 rows."""
    table = Story()
    table.upsert(range(400))
    table.compact(rows_per_compacted_file=400)
    table.delete([0])
    table.scene()
    return table


@story
def wide_rows_are_divided_by_bytes() -> Story:
    """Rows of 1 MiB: the target of 4 MiB divides them, not the number of rows."""
    table = Story()
    table.upsert(range(10), row_bytes=1 << 20)
    table.upsert(range(8, 14), row_bytes=1 << 20)
    table.scene(target_file_bytes=4 << 20)
    return table


@story
def several_files_in_a_delta() -> Story:
    """Files of one delta are folded in their order, and a key may come twice in one file."""
    table = Story()
    table.upsert([*range(50), *range(50)], range(40, 90))
    table.scene()
    return table


# --- dead rows that stay ---------------------------------------------------------------------------------------------


@story
def few_dead_rows_are_marked() -> Story:
    """Below the share of 20 % a file gets a deletion vector; the one above it is rewritten."""
    table = large_base()
    table.delete([*range(10), *range(100, 130)])
    table.scene(rewrite_dead_fraction=0.2)
    return table


@story
def marked_until_too_many_are_dead() -> Story:
    """Deletion vectors grow until a file has too many dead rows."""
    table = large_base()
    for first in (0, 10, 20):
        table.delete(range(first, first + 10))
        table.scene(rewrite_dead_fraction=0.25)
    return table


@story
def purge_rewrites_what_is_marked() -> Story:
    """No delta came, but rows under deletion vectors must go."""
    table = large_base()
    table.delete(range(10))
    table.compact(rewrite_dead_fraction=0.2)
    table.scene(purge=True)
    return table


# --- the index and the rounds ----------------------------------------------------------------------------------------


@story
def several_rounds() -> Story:
    """Four deltas, two rounds: rows that a later round kills are written nowhere."""
    table = Story()
    for _ in range(4):
        table.upsert(range(50))
    table.scene(rows_per_round=100)
    return table


@story
def rehashed_into_more_buckets() -> Story:
    """Another number of hash buckets: the index is written anew, the files stay."""
    table = large_base()
    table.upsert([400])
    table.scene(hash_bucket_count=4)
    return table


@story
def runs_are_merged() -> Story:
    """Small deltas add runs to the index until they are more than a quarter of the first one."""
    table = large_base()
    for first in (0, 100, 200):
        table.upsert(range(first, first + 40))
        table.scene()
    return table


@story
def tombstones_are_kept_for_a_while() -> Story:
    """A delete with a sort key leaves a tombstone for two positions; an older row stays dead meanwhile."""
    table = Story(sort_keys=["at"], tombstone_retention=2)
    table.upsert(range(100), at=10)
    table.compact()
    table.delete(range(10), at=20)
    table.scene()
    table.upsert(range(5), at=15)
    table.scene()
    table.upsert([200], at=30)
    table.upsert([201], at=30)
    table.scene()
    return table


# --- other tables, formats and schemas -------------------------------------------------------------------------------


@story
def into_a_destination() -> Story:
    """Another table gets the rows, file numbers and an index of its own; then only what changed."""
    table = Story()
    table.upsert(range(200))
    table.scene(destination="d")
    table.delete([3])
    table.scene(destination="d")
    return table


@story
def schema_that_is_widened() -> Story:
    """A new column: files that lose no row keep the old schema."""
    table = large_base()
    table.upsert(range(90, 110), color="red")
    table.scene()
    return table


@story
def other_content_type() -> Story:
    """From now on ORC: files that lose no row stay Parquet."""
    table = large_base()
    table.upsert(range(90, 110))
    table.scene(content_type=ContentType.ORC)
    return table


@story
def nothing_to_do() -> Story:
    """No delta since the last compaction."""
    table = large_base()
    table.scene()
    return table


@story
def one_partition_of_two_has_deltas() -> Story:
    """Each partition has a plan of its own, or a reason to have none."""
    table = Story(partition_keys=["day"])
    for day in ("1995-04-03", None):
        table.upsert(range(100), partition={"day": day})
    table.compact()
    table.upsert([7], partition={"day": None})
    table.scene()
    return table


@story
def many_partitions() -> Story:
    """Twelve partitions, of which every third one has a delta."""
    table = Story(partition_keys=["month"])
    for month in range(1, 13):
        table.upsert(range(20), partition={"month": f"{month:02}"})
    table.compact()
    for month in range(1, 13, 3):
        table.upsert([1], partition={"month": f"{month:02}"})
    table.scene()
    return table


def large_base() -> Story:
    """Four files of 100 rows: keys 0 to 399."""
    table = Story()
    table.upsert(range(400))
    table.compact()
    return table


# --- comparing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.slow
def test_the_layout_is_as_it_was_drawn(name: str) -> None:
    tell = STORIES[name]
    drawn = f"{name.replace('_', ' ')}: {tell.__doc__}\n\n{tell().text}"
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(drawn)
    assert drawn == path.read_text()


def test_every_drawing_has_a_story() -> None:
    assert sorted(path.stem for path in GOLDEN.iterdir()) == sorted(STORIES)
