"""The order that a rewrite gives the rows of a partition: clustered by a split tree, or sorted.

cluster-by day*3,customer                     ClusterBy        a split tree
strategy=sort sort-order="day DESC, id"       SortBy           ranges of the order, and rows sorted inside
strategy=sort                                 SortBy           the table's own order, with its transforms
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.iceberg.boxes import ordered_column
from deltacompact.iceberg.table.column_bounds import has_order
from deltacompact.iceberg.table.metadata import SortField, TableMetadata
from deltacompact.iceberg.table.pyiceberg_door.transforms import PartitionColumn, check_transform, transformed
from deltacompact.iceberg_modes.rewrite.options import CLUSTER_PROPERTY, RewriteOptions, Strategy
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.cutting_ranges import cut_ranges, keys_of
from deltacompact.layout.extents import Extents, weighed
from deltacompact.layout.growing import Weights, grow
from deltacompact.layout.order import Numbers
from deltacompact.layout.ranges import Key, RangeCuts, sorted_by
from deltacompact.layout.sort_order import OrderedColumn, SortItem, sort_items
from deltacompact.layout.split_tree import SplitTree


@dataclass(frozen=True, slots=True)
class ClusterBy:
    """By a split tree. Columns of weight 0 identify a row: they cut what no other column can."""

    columns: tuple[ClusterColumn, ...]

    order_id: ClassVar[int | None] = None

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def bounded(self) -> list[str]:
        """The columns that readers shall skip files by."""
        return [column.name for column in self.columns if column.weight]

    def prepared(self, rows: pa.Table) -> pa.Table:
        return rows

    def among(self, extents: Extents) -> ClusterBy:
        """The same columns, with weights for rows of these extents."""
        return replace(self, columns=weighed(self.columns, extents))

    def layout(self, sample: pa.Table, sizes: Weights, files: int, cells: int) -> SplitTree:
        return grow(sample, self.columns, sizes, files, cells)


@dataclass(frozen=True, slots=True)
class SortBy:
    """By a sort order. `derived`: the columns that transforms compute, by the names that the order's items use.

    `order_id`: the id of the table's sort order that this is; None: it is none of them.
    """

    items: tuple[SortItem, ...]
    derived: tuple[tuple[str, PartitionColumn], ...] = ()
    order_id: int | None = None

    @property
    def names(self) -> list[str]:
        of = dict(self.derived)
        names = [of[name].source if name in of else name for item in self.items for name in item.names]
        return list(dict.fromkeys(names))

    @property
    def bounded(self) -> list[str]:
        return self.names

    def prepared(self, rows: pa.Table) -> pa.Table:
        """The rows with the columns that transforms make."""
        for name, by in self.derived:
            rows = rows.append_column(name, transformed(rows[by.source], by))
        return rows

    def among(self, extents: Extents) -> SortBy:
        """The same order: it has no weights."""
        return self

    def layout(self, sample: pa.Table, sizes: Weights, files: int, cells: int) -> RangeCuts:
        return cut_ranges(sample, keys_of(sample, self.items), sizes, files, cells)

    def order_of(self, keys: Sequence[Key], rows: pa.Table) -> Numbers:
        return sorted_by(keys, self.prepared(rows))


RowOrder = ClusterBy | SortBy


def row_order_of(metadata: TableMetadata, options: RewriteOptions) -> RowOrder | None:
    """The order that the options ask for; None: rows keep theirs.

    Raises InputError naming a column that the table lacks, that lies in a struct, or whose values have no order.
    """
    if options.strategy is Strategy.SORT:
        return _sort_by(metadata, options.sort_order)
    if not options.cluster_by:
        return None
    for column in options.cluster_by:
        try:
            ordered_column(metadata, column.name)
        except InputError as error:
            of_table = column.name in metadata.properties.get(CLUSTER_PROPERTY, "")
            raise InputError(f"the table's property {CLUSTER_PROPERTY}: {error}" if of_table else str(error)) from None
    named = {column.name for column in options.cluster_by}
    by_id = [metadata.columns[number] for number in metadata.identifier_ids]
    keys = [column.field.name for column in by_id if column.is_top_level and has_order(column.type)]
    columns = (*options.cluster_by, *(ClusterColumn(name, 0.0) for name in keys if name not in named))
    return ClusterBy(tuple(replace(column, nulls_first=_nulls_first(metadata, column.name)) for column in columns))


def _nulls_first(metadata: TableMetadata, name: str) -> bool:
    """Whether nulls lie beside the least value in the table's own order. Without one they do."""
    number, _ = ordered_column(metadata, name)
    fields = metadata.sort_orders.get(metadata.sort_order_id, ())
    return next((field.nulls_first != field.descending for field in fields if field.source_id == number), True)


def _sort_by(metadata: TableMetadata, text: str | None) -> SortBy:
    if text is None:
        return _own_order(metadata)
    items = sort_items("option sort-order", text)
    fields = tuple(map(lambda item: _field(metadata, item), items))
    same = (number for number, of in metadata.sort_orders.items() if of and of == fields)
    return _derived(metadata, items, next(same, None))


def _field(metadata: TableMetadata, item: SortItem) -> SortField | None:
    """The field of a table's sort order that an item is; None for a curve."""
    if not isinstance(item, OrderedColumn):
        return None
    return SortField(ordered_column(metadata, item.name)[0], item.transform, item.descending, item.nulls_first)


def _own_order(metadata: TableMetadata) -> SortBy:
    """The order in which writers of the table are asked to write."""
    fields = metadata.sort_orders.get(metadata.sort_order_id, ())
    if not fields:
        raise InputError(f"table {metadata.table_id!r} has no sort order: give the option sort-order")
    items = []
    for field in fields:
        column = metadata.columns.get(field.source_id)
        name = column.field.name if column is not None and not column.is_dropped else f"with id {field.source_id}"
        items.append(OrderedColumn(name, field.descending, field.nulls_first, field.transform))
    return _derived(metadata, items, metadata.sort_order_id)


def _derived(metadata: TableMetadata, items: Sequence[SortItem], order_id: int | None) -> SortBy:
    """An order whose transforms make columns of their own."""
    found, derived = list[SortItem](), []
    for place, item in enumerate(items):
        known = [ordered_column(metadata, name)[1] for name in item.names]
        if isinstance(item, OrderedColumn) and item.transform != "identity":
            by = PartitionColumn(item.name, known[0].type, item.transform)
            check_transform(by)
            item = replace(item, name=f"deltacompact.sort-{place}")
            derived.append((item.name, by))
        found.append(item)
    return SortBy(tuple(found), tuple(derived), order_id)
