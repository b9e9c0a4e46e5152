"""The keys that a batch of changes upserts and deletes: a mirror has one row of each key.

insert 1 a, 2 b, 1 c      key 1 is that of two rows: no mirror can hold both
insert 1 a · delete 1     a row that moved to another partition of its source: one row
delete 1                  its insert may be in an earlier batch: what the source has of key 1 is looked for

Digests of very many keys wait in temporary files, and are looked at part by part.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.change_feed.columns import CHANGE_COLUMNS, ChangeType
from deltacompact.change_feed.pairing import key_digests
from deltacompact.layout.skipping import is_bounded

UPSERTS = (str(ChangeType.INSERT), str(ChangeType.UPDATE_AFTER))
DELETES = (str(ChangeType.DELETE),)
KEYS_MAX = 1 << 22
"""Digests that are held at a time. They take 16 bytes each."""
FEW_KEYS = 1 << 14
"""So many keys are a filter of what is read."""

_CHANGE = CHANGE_COLUMNS.field(0).name
_Digests = npt.NDArray[np.uint64]
RowsAtEnd = Callable[[Sequence[str] | None, pc.Expression | None], Iterable[pa.RecordBatch]]
"""Reads the rows at the end of a batch, as inserts: these columns (None: those of the batch), and about those rows for
which the expression is true."""
Alike = Callable[[pa.Table], pa.Table]
"""Columns that are equal in rows of which a mirror has one: of the key, and others that are made of them."""


class BatchKeys:
    """Looks at changes as they pass. The files keep what was seen."""

    def __init__(self, key: Sequence[str], alike: Alike, upserts: IO[bytes], deletes: IO[bytes]) -> None:
        self._key, self._alike = list(key), alike
        self._upserts, self._deletes = _Kept(upserts), _Kept(deletes)
        self._few = _FewKeys()

    @classmethod
    @contextlib.contextmanager
    def of(cls, key: Sequence[str], alike: Alike) -> Iterator[BatchKeys]:
        with _file() as upserts, _file() as deletes:
            yield cls(key, alike, upserts, deletes)

    def add(self, changes: pa.RecordBatch) -> None:
        for kept, kinds in ((self._upserts, UPSERTS), (self._deletes, DELETES)):
            rows = pa.Table.from_batches([changes]).filter(pc.field(_CHANGE).isin(kinds))
            kept.add(self._digests(rows))
            if kept is self._deletes:
                self._few.add(self._of_key(rows))

    def left(self, at_end: RowsAtEnd) -> Iterator[pa.RecordBatch]:
        """Rows of the batch's end whose keys the batch deletes, and does not upsert.

        Nearly always there are none, and only key columns are read.
        """
        count = max(self._upserts.count, self._deletes.count)
        for upserts, deletes in zip(self._upserts.parts(count), self._deletes.parts(count), strict=True):
            wanted = deletes.filter(pc.invert(pc.is_in(deletes, value_set=upserts)))
            if not len(wanted):
                continue
            found = _FewKeys()
            for rows in self._of_keys(at_end(self._key, self._few.filter), wanted):
                found.add(self._of_key(rows))
            if found.count:
                for rows in self._of_keys(at_end(None, found.filter), wanted):
                    yield from rows.to_batches()

    def repeated(self, again: Callable[[], Iterable[pa.RecordBatch]]) -> str | None:
        """A key of two rows, as a text. `again` reads the same changes once more, to name it."""
        parts = self._upserts.parts(self._upserts.count)
        repeated = next((digest for part in parts if (digest := _repeated(part)) is not None), None)
        if repeated is None:
            return None
        for changes in again():
            rows = pa.Table.from_batches([changes])
            for row in rows.filter(pc.equal(_binary(self._digests(rows)), repeated)).slice(0, 1).to_pylist():
                return ", ".join(f"{name}={row[name]!r}" for name in self._key)
        return ", ".join(self._key)

    def _of_keys(self, found: Iterable[pa.RecordBatch], wanted: pa.Array) -> Iterator[pa.Table]:
        for batch in found:
            rows = pa.Table.from_batches([batch])
            chosen = rows.filter(pc.is_in(_binary(self._digests(rows)), value_set=wanted))
            if chosen.num_rows:
                yield chosen

    def _digests(self, rows: pa.Table) -> _Digests:
        alike = self._alike(rows)
        return key_digests(alike, alike.column_names)

    def _of_key(self, rows: pa.Table) -> pa.Table:
        """The columns of the key that are equal in rows of which a mirror has one."""
        alike = self._alike(rows)
        return alike.select([name for name in alike.column_names if name in self._key])


def _file() -> tempfile.SpooledTemporaryFile[bytes]:
    return tempfile.SpooledTemporaryFile(KEYS_MAX * 16, prefix="deltacompact-")


@dataclass(slots=True)
class _Kept:
    """Digests in a file."""

    file: IO[bytes]
    count: int = 0

    def add(self, digests: _Digests) -> None:
        self.file.write(digests.tobytes())
        self.count += len(digests)

    def parts(self, count: int) -> Iterator[pa.Array]:
        """The digests, of `count` about KEYS_MAX at a time. Equal ones are in one part."""
        parts = -(-count // KEYS_MAX)
        for part in range(parts):
            self.file.seek(0)
            found = [np.empty((0, 2), np.uint64)]
            while chunk := self.file.read(KEYS_MAX * 16):
                digests = np.frombuffer(chunk, np.uint64).reshape(-1, 2)
                found.append(digests[digests[:, 0] % np.uint64(parts) == part])
            yield _binary(np.concatenate(found))


@dataclass(slots=True)
class _FewKeys:
    """The values of some keys, as long as they are few."""

    count: int = 0
    _tables: list[pa.Table] = field(default_factory=list)

    def add(self, keys: pa.Table) -> None:
        self.count += keys.num_rows
        self._tables.append(keys)
        if self.count > FEW_KEYS:
            self._tables.clear()

    @property
    def filter(self) -> pc.Expression | None:
        """True for rows with these keys, and for some others. None: for all."""
        if self.count > FEW_KEYS:
            return None
        keys = pa.concat_tables(self._tables)
        names = [column.name for column in keys.schema if _is_exact(column.type)]
        return reduce(and_, (_is_one_of(name, keys[name].combine_chunks()) for name in names)) if names else None


def _is_exact(type_: pa.DataType) -> bool:
    """Whether keys are equal where Arrow finds their values equal: 0.0 and -0.0, too, are one key."""
    return is_bounded(type_) and not pa.types.is_floating(type_)


def _is_one_of(name: str, values: pa.Array) -> pc.Expression:
    column = pc.field(name)
    found = column.isin(values.drop_null())
    return found | column.is_null() if values.null_count else found


def _binary(digests: _Digests) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(digests), [None, pa.py_buffer(digests.tobytes())])


def _repeated(digests: pa.Array) -> pa.Scalar | None:
    """A digest that is there twice."""
    counted = digests.value_counts()
    twice = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
    return twice[0] if len(twice) else None
