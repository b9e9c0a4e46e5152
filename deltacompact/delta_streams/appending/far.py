"""The far values of a stream: checks that the common types of its files hold the values of every file. Pure.

    position 80   at timestamp[us]   2026 … 9999        the stream: at 2026 … 9999
    incoming      at timestamp[us]   2026               fits
    incoming      at timestamp[ns]   2026               refused: then at becomes timestamp[ns], which ends in 2262

    position 80   at timestamp[ns]   2026               the stream: nothing far
    incoming      at timestamp[us]   9999               refused: at stays timestamp[ns]

far_values.py says which values are far. Files of release 0.1 were not measured: they are measured when a type changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from deltacompact.base.data_file import DataFile, FarValues
from deltacompact.base.deltas import CompactedDelta, Delta
from deltacompact.base.errors import SchemaError
from deltacompact.base.model import OperationType
from deltacompact.base.table_keys import TableKeys
from deltacompact.tabular import column_types, far_values

Measure = Callable[[DataFile], DataFile]
"""Returns a file with its far values and the longest values of its sort columns."""


@dataclass(frozen=True, slots=True)
class FarOfStream:
    """The far values of the files of a stream, and the files whose far values are not known."""

    known: FarValues = ()
    unmeasured: tuple[DataFile, ...] = ()

    @classmethod
    def of_compacted(cls, compacted: CompactedDelta) -> FarOfStream:
        if compacted.far is not None:
            return cls(compacted.far)
        return cls().with_files(file for file in compacted.files if may_have(file))

    def with_files(self, files: Iterable[DataFile]) -> FarOfStream:
        """These far values and those of more files, unchecked."""
        files = list(files)
        known = far_values.merged([self.known, *(file.far for file in files if file.far)])
        return FarOfStream(known, (*self.unmeasured, *(file for file in files if file.far is None)))

    def measured(self, measure: Measure) -> FarOfStream:
        """The far values of the stream after every file has been measured."""
        return FarOfStream(self.known).with_files(map(measure, self.unmeasured)) if self.unmeasured else self

    def check(self, incoming: DataFile, types: pa.Schema) -> None:
        """Raise SchemaError if `types`, the stream's types with the incoming file, do not hold all values."""
        if not self.known and not incoming.far:
            return
        for leaf in far_values.leaves(types):
            for far, own in ((incoming.far or (), True), (self.known, False)):
                if (range_ := far_values.misfit(leaf, far)) is not None:
                    raise _refused(incoming, *leaf, range_, own)


NOTHING_FAR = FarOfStream()


def _refused(file: DataFile, path: str, type_: pa.DataType, range_: tuple[int, int], own: bool) -> SchemaError:
    shown = far_values.misfit_text(type_, range_)
    column = f"{file.path}: column {path!r}"
    if own:
        return SchemaError(f"{column} has the value {shown}, which does not fit {type_} in other files")
    given = dict(far_values.leaves(file.schema)).get(path, type_)
    return SchemaError(
        f"{column} is {given}, so all rows get {type_}, which does not hold the value {shown} of earlier rows"
    )


def may_have(file: DataFile) -> bool:
    """Whether the file was not measured, and may have far values."""
    return file.far is None and bool(file.rows) and bool(far_values.ranged_columns(file.schema))


def has_changed(before: pa.Schema, after: pa.Schema) -> bool:
    """Whether the type of a leaf that may have far values changes."""
    if before == after:
        return False
    types = dict(far_values.leaves(after))
    return any(
        far_values.may_be_far(type_) and types.get(path, type_) != type_ for path, type_ in far_values.leaves(before)
    )


def of_delta(operation: OperationType, file: DataFile, keys: TableKeys | None) -> DataFile:
    """The file with the far values that count: in a delete, only those of sort columns."""
    if operation is OperationType.UPSERT or not file.far:
        return file
    return replace(file, far=far_values.of_columns(file.far, [key.name for key in keys.sort] if keys else []))


def all_far(base: CompactedDelta | None, deltas: Sequence[Delta], keys: TableKeys) -> FarValues | None:
    """The far values of a compacted version and the deltas folded into it. None: some are unknown."""
    files = [of_delta(delta.operation, file, keys) for delta in deltas for file in delta.files]
    if (base is not None and base.far is None) or any(map(may_have, files)):
        return None
    return far_values.merged([(base.far if base else None) or (), *(file.far or () for file in files)])


def with_sort_types(rows: pa.Schema, sort: Iterable[tuple[str, pa.DataType]]) -> pa.Schema:
    """The columns, with the types in which sort columns are compared: deletes may have wider ones than the rows."""
    for name, type_ in sort:
        number = rows.get_field_index(name)
        known = rows.field(number).type if number >= 0 else type_
        wider = column_types.widened(known, type_) or known
        rows = rows.append(pa.field(name, wider)) if number < 0 else rows.set(number, pa.field(name, wider))
    return rows
