"""What a publication adds and removes, as a pure function of a head and of what versions have."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hand_made_tables import data, equality, positions, state, vector

from deltacompact.base.data_file import DataFile, DeletionVector
from deltacompact.base.errors import InputError
from deltacompact.base.model import ContentType
from deltacompact.base.numbers import ChainFileNumber, Ordinal
from deltacompact.publication.columns import joined
from deltacompact.publication.iceberg.difference import deletes_name, difference
from deltacompact.publication.iceberg.target import IcebergTarget
from deltacompact.publication.port import FilesToShow, ShownFile, Source
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular.published_types import ICEBERG_TYPES

WHERE = "s3://lake/tables/"
SOURCE = Source(MemoryStore(), WHERE, "orders", (), 0.0)
MONDAY, TUESDAY = "orders/day=1", "orders/day=2"


def path(stream, name):
    return f"{WHERE}{stream}/data/{'0' * 24}/{name:0>32}.parquet"


def wanted(stream, name, masks=None):
    deletions = DeletionVector(1, masks, Ordinal(3)) if masks else None
    location = path(stream, name)
    file = DataFile(
        ChainFileNumber(1), location.removeprefix(WHERE), ContentType.PARQUET, 4, 9, pa.schema([]), deletions
    )
    return ShownFile(location, file, ())


def dead(shown, of=None):
    """The position deletes of a file, as an earlier run left them."""
    name = deletes_name(shown.dead_rows, "f" * 32)
    return positions(f"s3://warehouse/orders/data/{name}", 2, of=[of or shown.location])


def names(entries):
    return [entry.file.path for entry in entries]


def streams(*files, stream=MONDAY, known=frozenset({MONDAY, TUESDAY})):
    return FilesToShow({stream: {file.location: file for file in files}}, {}, 0, lambda: known)


def test_files_are_told_apart_by_their_paths():
    a, b, c = (wanted(MONDAY, name) for name in "abc")
    head = state(data(a.location, 1), data(b.location, 1))
    found = difference(head, SOURCE, streams(b, c))
    assert names(found.removed) == [a.location]
    assert (found.data, found.dead) == ((c,), ())
    settled = difference(state(data(b.location, 1), data(c.location, 2)), SOURCE, streams(b, c))
    assert (settled.removed, settled.data, settled.dead) == ((), (), ())


def test_dead_rows_are_replaced_where_the_vector_changed_and_go_with_their_file():
    before, after, other = wanted(MONDAY, "a", "m1"), wanted(MONDAY, "a", "m2"), wanted(MONDAY, "b", "m1")
    head = state(data(before.location, 1), data(other.location, 1), dead(before), dead(other))
    changed = difference(head, SOURCE, streams(after, other))
    assert names(changed.removed) == names([dead(before)])
    assert (changed.data, changed.dead) == ((), (after,))
    lives = difference(head, SOURCE, streams(wanted(MONDAY, "a"), other))
    assert names(lives.removed) == names([dead(before)])
    gone = difference(head, SOURCE, streams(other))
    assert names(gone.removed) == [before.location, *names([dead(before)])]
    same = difference(head, SOURCE, streams(before, other))
    assert (same.removed, same.data, same.dead) == ((), (), ())


def test_a_delete_file_whose_data_file_was_dropped_alone_is_replaced():
    """It was taken for the dead rows of the data file that came again, to which it does not apply."""
    shown = wanted(MONDAY, "a", "m1")
    dropped = difference(state(dead(shown)), SOURCE, streams(shown))
    assert names(dropped.removed) == names([dead(shown)])
    assert (dropped.data, dropped.dead) == ((shown,), (shown,))
    added_again = difference(state(dead(shown), data(shown.location, 3)), SOURCE, streams(shown))
    assert names(added_again.removed) == names([dead(shown)])
    assert (added_again.data, added_again.dead) == ((), (shown,))


def test_partitions_that_nobody_asked_about_stay_and_empty_ones_are_emptied():
    monday, tuesday = wanted(MONDAY, "a", "m1"), wanted(TUESDAY, "a", "m1")
    assert monday.dead_rows != tuesday.dead_rows
    head = state(data(monday.location, 1), data(tuesday.location, 1), dead(monday), dead(tuesday))
    found = difference(head, SOURCE, streams(stream=TUESDAY))
    assert names(found.removed) == [tuesday.location, *names([dead(tuesday)])]
    assert found.data == ()


def test_a_stream_that_the_table_does_not_have_is_emptied():
    monday, tuesday = wanted(MONDAY, "a", "m1"), wanted(TUESDAY, "a")
    head = state(data(monday.location, 1), data(tuesday.location, 1), dead(monday))
    found = difference(head, SOURCE, streams(tuesday, stream=TUESDAY, known=frozenset({TUESDAY})))
    assert names(found.removed) == [monday.location, *names([dead(monday)])]


def test_streams_are_not_listed_if_all_that_are_shown_are_wanted():
    def listed():
        raise AssertionError("a list of all streams")

    a, b = wanted(MONDAY, "a"), wanted(MONDAY, "b")
    now = FilesToShow({MONDAY: {b.location: b}}, {}, 0, listed)
    assert names(difference(state(data(a.location, 1)), SOURCE, now).removed) == [a.location]


OURS = wanted(MONDAY, "a", "m1")


@pytest.mark.parametrize(
    "foreign",
    [
        data("s3://warehouse/orders/data/x.parquet", 1),
        data(f"{WHERE}orders/day=1/elsewhere/x.parquet", 1),
        data(OURS.location.replace("s3://lake", "s3://other"), 1),
        equality("s3://warehouse/orders/data/e.parquet", 2),
        positions("s3://warehouse/orders/data/p.parquet", 2, of=[OURS.location]),
        positions(f"s3://w/{deletes_name(OURS.dead_rows, 'f' * 32)}", 2, of=[OURS.location, OURS.location + "z"]),
        vector("s3://warehouse/orders/data/v.puffin", 2, of=OURS.location),
        dead(OURS, of="s3://warehouse/orders/data/x.parquet"),
    ],
)
def test_files_of_others_are_named(foreign):
    head = state(data(OURS.location, 1), foreign)
    with pytest.raises(InputError, match="has files of others"):
        difference(head, SOURCE, streams(OURS))


@pytest.mark.parametrize("other", [pa.binary(), pa.binary(8)])
def test_binaries_of_a_fixed_size_fit_no_others(other):
    """Iceberg widens no such column, and PyIceberg reads no such file where the table has binaries of any size."""
    fixed, others = pa.schema([("v", pa.binary(4))]), pa.schema([("v", other)])
    assert joined([fixed, fixed], "t") == fixed
    for parts in ([fixed, others], [others, fixed]):
        with pytest.raises(InputError, match=r"t: column 'v' is .*, which does not fit"):
            joined(parts, "t")


def test_columns_widen_only_as_the_streams_do():
    parts = [pa.schema([("id", pa.int32())]), pa.schema([("v", pa.string()), ("id", pa.int64())])]
    assert joined(parts, "t") == pa.schema([("id", pa.int64()), ("v", pa.string())])
    with pytest.raises(InputError, match="t: column 'id' is string, which does not fit int32"):
        joined([parts[0], pa.schema([("id", pa.string())])], "t")
    nested = pa.schema([("n", pa.struct([("l", pa.large_list(pa.dictionary(pa.int32(), pa.large_string())))]))])
    assert ICEBERG_TYPES.columns(nested, "t") == pa.schema([("n", pa.struct([("l", pa.list_(pa.string()))]))])


def test_targets():
    assert str(IcebergTarget.of("iceberg://prod/lake.eu.orders")) == "iceberg://prod/lake.eu.orders"
    assert IcebergTarget.of("iceberg://prod/db.a b") == IcebergTarget("prod", "db.a b")
    for uri in ("", "prod/db.t", "iceberg:///db.t", "iceberg://prod/t", "iceberg://prod/db.", "iceberg://prod/.t"):
        with pytest.raises(InputError):
            IcebergTarget.of(uri)
