"""Rewrites that cluster: rows go to files by a split tree, none is lost, and readers can skip files."""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dead_sessions import Death, Died, dying, journals
from plan_json import plan_to_json
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, ListType, LongType, NestedField, StringType, StructType
from version_3 import delete_by_vector, known_rows, live_rows

from deltacompact.base.errors import InputError
from deltacompact.base.settings import Settings
from deltacompact.catalog.iceberg import IcebergCatalog
from deltacompact.iceberg.boxes import boxes_of_files
from deltacompact.iceberg.marks.finding import Sizes
from deltacompact.iceberg_modes.journal.journal import FOLDER
from deltacompact.iceberg_modes.rewrite.options import rewrite_options
from deltacompact.iceberg_modes.rewrite.plan_document import plan_document, plan_from_json
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.depth import depth_of
from deltacompact.layout.document import layout_from_json

T = "ns.t"
SMALL_GROUPS = Settings(executor="local", local_threads=1, row_group_rows=100, certify=True)
SIZES = [Sizes(), Sizes(run_bytes=4_000), Sizes(run_bytes=4_000, held_bytes=0)]
"""In the second, nothing fits: a task writes many runs, and an output reads its rows part by part."""
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int32()), ("name", pa.string()), ("amount", pa.float64())])


def rows_of(count, seed=7):
    generator = np.random.default_rng(seed)
    amount = generator.random(count)
    amount[::50] = np.nan
    columns = {
        "id": pa.array(generator.permutation(count)),
        "day": pa.array(generator.integers(0, 100, count), pa.int32(), mask=generator.random(count) < 0.02),
        "name": pa.array([f"https://www.example.com/{number:06}" for number in generator.permutation(count)]),
        "amount": pa.array(amount),
    }
    return pa.table(columns, schema=SCHEMA)


def table_of(lake, count=3_000, version=2, **others):
    lake.create(T, SCHEMA, version, **others)
    rows = rows_of(count)
    for start in range(0, count, count // 3):
        part = rows.slice(start, count // 3)
        lake.append(T, part if version < 3 else part.to_pylist())
    return rows


def by_id(table):
    """Rows that can be compared, NaN too."""
    return table.sort_by("id").select(SCHEMA.names).cast(SCHEMA).to_pylist().__repr__()


def read(lake):
    return lake.catalog.load_table(T).scan().to_arrow()


def trees(lake, found):
    """Collects the trees that lie by the plan."""

    def collect():
        store = lake.store(T)
        for stat in store.list(FOLDER):
            if "/tree-" in stat.path:
                found[stat.path.rpartition("/")[2]] = layout_from_json(
                    store.get(stat.path), lake.state(T).metadata.uuid
                )

    return collect


def leaves_of(tree, rows):
    ends = np.cumsum([leaf.cells for leaf in tree.leaves])
    return np.searchsorted(ends, tree.cells_of(rows), side="right")


def files(lake):
    return [pq.read_table(entry.file.path.removeprefix("file://")) for entry in lake.state(T).data]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.slow
def test_each_file_is_a_leaf_and_lies_in_the_order_of_its_cells(lake, sizes):
    rows = table_of(lake)
    found = {}
    result = lake.rewrite(
        T,
        settings=SMALL_GROUPS,
        rewrite_all=True,
        target_file_size_bytes=20_000,
        cluster_by="day*2,name,amount",
        sizes=sizes,
        before_commit=trees(lake, found),
    )
    assert by_id(read(lake)) == by_id(rows)
    (tree,) = found.values()
    assert result.files_out == len(tree.leaves) >= 3
    seen = []
    for file in files(lake):
        (leaf,) = set(leaves_of(tree, file).tolist())
        seen.append(leaf)
        cells = tree.cells_of(file)
        assert (np.diff(cells) >= 0).all() and len(set(cells.tolist())) > 1
    assert sorted(seen) == list(range(len(tree.leaves)))
    sizes_of = [entry.file.rows for entry in lake.state(T).data]
    assert max(sizes_of) < 1.4 * min(sizes_of)
    assert not journals(lake)  # and the trees went with them


def test_readers_skip_files_by_bounds_that_are_written_whatever_the_modes_are(lake):
    none = {"write.metadata.metrics.default": "none"}
    table_of(lake, properties=none)
    lake.rewrite(T, rewrite_all=True, target_file_size_bytes=10_000, cluster_by="name, amount")
    state = lake.state(T)
    ids = {column.field.name: number for number, column in state.metadata.columns.items()}
    for entry in state.data:
        assert entry.file.lower_bounds.keys() == {ids["name"], ids["amount"]}
        assert len(entry.file.upper_bounds[ids["name"]]) == len("https://www.example.com/000000")
        assert ids["amount"] in entry.file.nan_value_counts and ids["id"] not in entry.file.value_counts
    scan = lake.catalog.load_table(T).scan("name = 'https://www.example.com/000700'")
    opened = len(list(scan.plan_files()))
    assert 0 < opened <= len(state.data) // 2 and scan.to_arrow().num_rows == 1


@pytest.mark.parametrize("sizes", SIZES)
def test_deletes_are_applied_on_the_way(lake, sizes):
    rows = table_of(lake)
    path = lake.state(T).data[0].file.path
    gone = pq.read_table(path.removeprefix("file://"))["id"].to_pylist()[:5]
    lake.delete_by_position(T, {path: range(5)})
    lake.delete_by_key(T, {"id": [7, 8, 9]})
    result = lake.rewrite(T, rewrite_all=True, target_file_size_bytes=20_000, cluster_by="day", sizes=sizes)
    dead = {*gone, 7, 8, 9}
    assert result.rows_out == 3_000 - len(dead) == 3_000 - result.dead_by_position - result.dead_by_key
    assert sorted(read(lake)["id"].to_pylist()) == sorted(set(rows["id"].to_pylist()) - dead)
    assert not lake.state(T).deletes


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.slow
def test_rows_keep_their_ids_in_version_3(lake, sizes):
    table_of(lake, 300, version=3)
    before = sorted(map(repr, known_rows(lake, T).elements()))
    lake.rewrite(T, rewrite_all=True, target_file_size_bytes=2_000, cluster_by="day,name", sizes=sizes)
    assert len(lake.state(T).data) > 1
    assert sorted(map(repr, known_rows(lake, T).elements())) == before and len(live_rows(lake, T)) == 300


@pytest.mark.slow
def test_partitions_have_trees_of_their_own_and_rows_may_move_to_another_spec(lake):
    rows = table_of(lake)
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_field("day", IdentityTransform())
    options = {"rewrite_all": True, "output_spec_id": 1, "cluster_by": "name", "sizes": SIZES[1]}
    lake.rewrite(T, target_file_size_bytes=1_000, min_file_size_bytes=10, **options)
    assert by_id(read(lake)) == by_id(rows)
    by_day = {}
    for entry in lake.state(T).data:
        assert entry.file.spec_id == 1
        by_day.setdefault(entry.file.partition, []).append(entry.file)
    assert len(by_day) == 101
    state = lake.state(T)
    found = boxes_of_files(state.metadata, state.data, ["name"])
    for number in range(101):  # the files of a day do not overlap
        own = found.partitions == number
        order = np.argsort(found.low[0][own])
        assert (found.high[0][own][order][:-1] < found.low[0][own][order][1:]).all()


def test_files_that_are_sorted_already_give_an_even_sample(lake):
    lake.create(T, SCHEMA)
    rows = rows_of(30_000).sort_by("id")
    for start in range(0, 30_000, 10_000):
        lake.append(T, rows.slice(start, 10_000))
    result = lake.rewrite(T, rewrite_all=True, target_file_size_bytes=50_000, cluster_by="id")
    counts = [entry.file.rows for entry in lake.state(T).data]
    assert result.files_out == len(counts) > 8 and max(counts) < 1.3 * min(counts)


def test_a_value_larger_than_a_file_is_cut_by_the_identifier_then_by_position(lake):
    fields = [NestedField(1, "id", LongType(), required=True), NestedField(2, "day", LongType(), required=False)]
    for identifiers, table in (([1], "ns.by_id"), ([], "ns.by_position")):
        lake.create(table, Schema(*fields, identifier_field_ids=identifiers))
        arrow = lake.catalog.load_table(table).schema().as_arrow()
        columns = [pa.array(np.random.default_rng(1).permutation(5_000)), pa.array(np.full(5_000, 7))]
        lake.append(table, pa.table(columns, schema=arrow))
        lake.rewrite(table, rewrite_all=True, target_file_size_bytes=4_000, cluster_by="day")
        state = lake.state(table)
        found = boxes_of_files(state.metadata, state.data, ["id"])
        order = np.argsort(found.low[0])
        is_apart = (found.high[0][order][:-1] < found.low[0][order][1:]).all()
        assert len(state.data) > 3 and is_apart == bool(identifiers)
        assert sorted(lake.catalog.load_table(table).scan().to_arrow()["id"].to_pylist()) == list(range(5_000))


def test_the_tables_property_is_the_default_and_an_empty_option_undoes_it(lake):
    property_ = {"deltacompact.cluster-by": "day*3,name"}
    assert rewrite_options({}, property_).cluster_by == (ClusterColumn("day", 3.0), ClusterColumn("name"))
    assert rewrite_options({"cluster-by": ""}, property_).cluster_by == ()
    table_of(lake, properties=property_)
    plan = lake.prepared(T, rewrite_all=True).plan()
    assert "clustered by day*3, name" in "\n".join(plan.lines())
    assert plan_from_json(plan_to_json(plan), lake.state(T)) == plan
    without = lake.prepared(T, rewrite_all=True, cluster_by="").plan()
    assert "cluster_by" not in plan_document(without)["plan"]["options"]  # older versions read it


@pytest.mark.parametrize(
    ("cluster_by", "why"),
    [
        ("color", "column 'color' is not in table 'ns.t': it has id, tags, place"),
        ("place.city", "column 'place.city' of table 'ns.t' lies inside of a struct: name a column of the top level"),
        ("place", "column 'place' of table 'ns.t' has type struct<.*>, which has no order"),
        ("tags", "column 'tags' of table 'ns.t' has type list<string>, which has no order"),
        ("id*x", "the weight 'x' of 'id\\*x' is no number above 0"),
        ("a,b,c,d,e", "names 5 columns: at most 4"),
    ],
)
def test_bad_columns_are_refused_before_any_work(lake, cluster_by, why):
    place = StructType(NestedField(4, "city", StringType(), required=False))
    tags = ListType(5, StringType(), element_required=False)
    lake.create(
        T,
        Schema(
            NestedField(1, "id", DoubleType(), required=False),
            NestedField(2, "tags", tags, required=False),
            NestedField(3, "place", place, required=False),
        ),
    )
    lake.append(T, [{"id": 1.0, "tags": ["a"], "place": {"city": "b"}}])
    before = sorted(str(path) for path in lake.folder.rglob("*"))
    with pytest.raises(InputError, match=why) as error:
        lake.rewrite(T, rewrite_all=True, cluster_by=cluster_by)
    assert "\n" not in str(error.value)
    assert sorted(str(path) for path in lake.folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("dya", ": column 'dya' is not in table 'ns.t': did you mean 'day'?"),
        ("day*x", ": the weight 'x' of 'day*x' is no number above 0"),
        ("a,b,c,d,e", " names 5 columns: at most 4 help readers"),
    ],
)
def test_a_line_about_a_property_says_that_it_is_one(lake, text, why):
    """Who ran a rewrite without options never wrote the name of that column: others did, or dropped it since."""
    table_of(lake, 30, properties={"deltacompact.cluster-by": text})
    with pytest.raises(InputError) as error:
        IcebergCatalog(lake.catalog).table(T).compact()
    assert str(error.value) == f"the table's property deltacompact.cluster-by{why}"


ORDERS = [{"cluster_by": "day,name"}, {"strategy": "sort", "sort_order": "name DESC"}]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("order", ORDERS, ids=["clustered", "sorted"])
@pytest.mark.slow
def test_rows_that_others_delete_meanwhile_are_marked_where_they_went(lake, order, sizes, version):
    """By position, with a whole file, and rows that were dead before: nothing is written again."""
    rows = table_of(lake, 1_500, version)
    first, second, third = (entry.file for entry in lake.state(T).data)
    gone = [read_file(path)["id"].to_pylist() for path in (first, second, third)]
    delete = lake.delete_by_position if version == 2 else functools.partial(delete_by_vector, lake)
    if version == 2:
        delete(T, {first.path: [0, 7]})

    def others():
        if version == 2:
            delete(T, {first.path: [3, 499], second.path: [0]})
        else:
            delete(T, {first.path: [0, 3, 7, 499]})
            delete(T, {second.path: [0]})

    once = iter([others])
    result = lake.rewrite(
        T,
        settings=SMALL_GROUPS,
        rewrite_all=True,
        target_file_size_bytes=10_000,
        sizes=sizes,
        before_commit=lambda: next(once, lambda: None)(),
        **order,
    )
    dead = {gone[0][place] for place in (0, 3, 7, 499)} | {gone[1][0]}
    assert (result.redone, result.dead_meanwhile) == (0, 3 if version == 2 else 5) and result.files_out > 2
    alive = sorted(row["id"] for row in lake.rows(T)) if version == 2 else lake.live_ids(T)
    assert alive == sorted(set(rows["id"].to_pylist()) - dead)


def read_file(file):
    return pq.read_table(file.path.removeprefix("file://"))


@pytest.mark.parametrize("at", range(2, 50, 8))
@pytest.mark.slow
def test_a_session_that_died_is_resumed_and_leaves_nothing(lake, at):
    rows = table_of(lake, 300)
    options = {"rewrite_all": True, "target_file_size_bytes": 2_000, "cluster_by": "day", "sizes": SIZES[1]}
    try:
        with dying(lake, Death(at)):
            lake.rewrite(T, **options)
    except Died:
        pass
    lake.rewrite(T, **options)
    assert by_id(read(lake)) == by_id(rows)
    assert not journals(lake)
    committed = lake.catalog.load_table(T).inspect.all_files()["file_path"].to_pylist()
    stored = {path.name for path in lake.folder.rglob("*.parquet")}
    assert stored == {path.rpartition("/")[2] for path in committed}


@pytest.mark.parametrize("bound", [{"max_file_group_size_bytes": 10_000}, {"max_file_group_input_files": 2}])
@pytest.mark.parametrize("order", [{"cluster_by": "day"}, {"strategy": "sort", "sort_order": "day"}])
def test_a_bound_on_groups_does_not_divide_what_is_laid_out_together(lake, order, bound):
    """Each group had a tree over all days, and the next run found nothing: readers opened a file of each, for ever."""
    rows = table_of(lake)
    for part in range(3):
        lake.append(T, rows.slice(part * 1_000, 1_000))
    result = lake.rewrite(T, rewrite_all=True, target_file_size_bytes=20_000, **order, **bound)
    state = lake.state(T)
    assert result.files_in == 6 and len(state.data) > 3
    assert depth_of(boxes_of_files(state.metadata, state.data, ["day"])).mean < 1.5


@pytest.mark.parametrize("length", [100, 200])
def test_a_line_says_why_readers_skip_no_file_by_a_column(lake, length):
    lake.create(T, SCHEMA)
    rows = rows_of(1_200)
    names = pa.array([f"{'x' * length}{name}" for name in rows["name"].to_pylist()])
    lake.append(T, rows.set_column(2, "name", names))
    result = lake.rewrite(T, rewrite_all=True, target_file_size_bytes=8_000, cluster_by="name,id")
    assert result.files_out > 2
    why = "column 'name': values of several files begin alike in the 128 characters that bounds have"
    assert [note.startswith(why) for note in result.notes] == [True] * (length == 200)


def test_a_line_says_that_values_are_too_long_for_bounds(lake):
    lake.create(T, SCHEMA)
    rows = rows_of(1_200)
    names = pa.array([f"{name}{'x' * 5_000}" for name in rows["name"].to_pylist()])
    lake.append(T, rows.set_column(2, "name", names))
    result = lake.rewrite(T, rewrite_all=True, target_file_size_bytes=8_000, cluster_by="name,id")
    (note,) = result.notes
    assert note.startswith(f"column 'name': {result.files_out} files without bounds: ")
