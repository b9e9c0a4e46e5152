"""Enters the rows of an upsert into a key index, and turns a bucket's entries into the entries that a fold reads.

    entered     digest(k1) | written by -1, sort columns | file 4 of its run, row 7 and flags      nothing but the file
    today       digest(k1) | written by 6,  sort columns | input 2, row 7, delete bit              a.parquet came with 6
                                                           dead rows, and files that are gone, are left out

The first line is what the index stores; it depends on the data file alone. The second is what the fold of this session
reads. In version 3 a row may have its own sequence number; -1: it has none, and gets its file's. Dead rows are entered,
too, so a row without a key gets a flag, and is refused only if it lives. A key may be in several key spaces, so the
number of the key space is mixed into the digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact import _kernels
from deltacompact.base import compute as pc
from deltacompact.base.data_file import DataFile
from deltacompact.base.distinct import distinct_numbers
from deltacompact.base.errors import InputError
from deltacompact.base.model import ContentType, OperationType
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.base.table_keys import TableKeys
from deltacompact.iceberg.deletes.ranges import Prefixes, prefixes_of
from deltacompact.iceberg.key_index.blocks import of_bucket, of_prefixes
from deltacompact.iceberg.key_index.document import IndexUnusableError, KeyIndex
from deltacompact.iceberg.key_index.entering import NumberedRun, numbered
from deltacompact.iceberg.key_index.order import Order, sequence_bytes, sequences_of
from deltacompact.iceberg.key_index.terms import Terms, terms_of
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg.table.parquet_files import by_field_id
from deltacompact.iceberg.table.row_lineage import LAST_UPDATED, has_lineage
from deltacompact.iceberg_modes.upsert.columns import UpsertColumns
from deltacompact.iceberg_modes.upsert.scattering import marked
from deltacompact.index.entries import DELETE_BIT, KEYLESS_BIT, Entries, fields, none
from deltacompact.index.keys import DIGEST_BYTES, resolve_encoding
from deltacompact.index.live_bitmaps import read_masks
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular.field_ids import field_id, id_of

_UNKNOWN = -1


def index_terms(metadata: TableMetadata, columns: UpsertColumns) -> Terms:
    """The terms of the index for an upsert by these columns."""
    ids = {column.name: id_of(column) for column in metadata.schema}
    names = dict.fromkeys((*columns.key, *(key.name for key in columns.sort)))
    if columns.operation is not None:
        names[columns.operation] = None
    return terms_of(metadata, columns.recorded, [ids[name] for name in names])


def entered_rows(
    metadata: TableMetadata, columns: UpsertColumns, measured: Sequence[DataFile], index: KeyIndex
) -> EnteredRows:
    """How rows are entered into `index`.

    `measured`: the new files, with the lengths of the longest values of their string sort columns. Sort keys get wider
    where these need it, and never narrower. Values are read in the table's types, so nothing else changes the width.
    """
    name_of = {column.name: str(id_of(column)) for column in metadata.schema}
    keys = TableKeys(
        tuple(name_of[name] for name in columns.key),
        tuple(replace(key, name=name_of[key.name]) for key in columns.sort),
    )
    wanted = {*columns.key, *(key.name for key in columns.sort), columns.operation}
    schema = by_field_id(column for column in metadata.schema if column.name in wanted)
    known = index.runs[-1].order.encoding if index.runs else None
    like_table = DataFile(UNNUMBERED, metadata.location, ContentType.PARQUET, 1, 0, schema)
    files = [
        replace(like_table, path=file.path, longest=tuple((name_of[name], size) for name, size in file.longest))
        for file in measured
    ]
    upserts = [(OperationType.UPSERT, file) for file in files or [like_table]]
    encoding = resolve_encoding(keys, (), upserts, known)
    with_sequence = pa.schema([*schema, *by_field_id([LAST_UPDATED])])
    return EnteredRows(
        with_sequence if has_lineage(metadata) else schema,
        Order(encoding, bool(columns.sort) or has_lineage(metadata)),
        None if columns.operation is None else name_of[columns.operation],
        columns.deletes,
    )


@dataclass(frozen=True, slots=True)
class EnteredRows:
    """Turns rows into index entries. Columns are named by their field ids, in `order`, too."""

    columns: pa.Schema
    order: Order
    operation: str | None
    deletes: pa.Array | None

    def entries(self, table: pa.Table, rows: npt.NDArray[np.uint64], number: int, path: str) -> Entries:
        encoding = self.order.encoding
        keyless = np.zeros(len(rows), bool)
        for column in encoding.key_columns:
            keyless |= np.asarray(table[column.name].is_null())
        sort_keys = encoding.sort_keys(table, path)
        if self.order.has_sequence:
            sort_keys = np.ascontiguousarray(np.hstack([sequence_bytes(_written_by(table)), sort_keys]))
        flagged = marked(table, rows, path, self.operation, self.deletes)
        flagged = np.where(keyless, flagged | KEYLESS_BIT, flagged)
        return _kernels.pack_entries(encoding.digests(table, path), sort_keys, number, flagged)


def _written_by(table: pa.Table) -> npt.NDArray[np.int64]:
    """The row's own sequence number. -1: it has none."""
    name = str(field_id(LAST_UPDATED))
    if name not in table.column_names:
        return np.full(table.num_rows, _UNKNOWN, np.int64)
    return np.asarray(pc.fill_null(table[name], _UNKNOWN), np.int64)


@dataclass(frozen=True, slots=True)
class IndexedRows:
    """The live rows that a fold must compare, by bucket, from an index.

    sequences, key_spaces    by input: its sequence number, and the number of its key space
    settled                  by input: whether an upsert has compared it with all other settled inputs
    first_rows               the number of each input's first row, counted through all inputs
    masks                    files of live bitmaps, each with the ordinals of its inputs

    No two live rows of settled inputs have the same key. So a fold needs only those whose key a new row may have:

        new         digest 40…                          the only row of c.parquet
        settled     blocks from 08…, 31…, 77…           the second is read, the others are not
    """

    runs: tuple[NumberedRun, ...]
    order: Order
    bucket_count: int
    sequences: npt.NDArray[np.int64]
    key_spaces: npt.NDArray[np.int64]
    settled: npt.NDArray[np.bool_]
    first_rows: npt.NDArray[np.int64]
    masks: tuple[tuple[str, tuple[int, ...]], ...]

    def of_bucket(self, store: ObjectStore, bucket: int) -> list[Entries]:
        """The entries in the order of (ordinal, row), as one array in a list.

        Raises IndexUnusableError if the index is damaged, and InputError for a live row without a key.
        """
        read = [
            (run, *numbered(of_bucket(store, run.files, run.order.entry_bytes, bucket, self.bucket_count), run.numbers))
            for run in self.runs
            if self._has_new(run)
        ]
        of_new = [prefixes_of(entries[~self.settled[ordinals]]) for _, ordinals, entries in read]
        new = distinct_numbers(np.concatenate([np.empty(0, np.uint64), *of_new]))
        read += [
            (run, *numbered(block, run.numbers))
            for run in self.runs
            if not self._has_new(run)
            for block in of_prefixes(store, run.files, run.order.entry_bytes, new)
        ]
        bits = _InputBits(store, self.masks, len(self.sequences))
        parts = []
        for run, ordinals, entries in read:
            meets = self._meets(ordinals, entries, new)
            parts.append(self._live(run.order, ordinals[meets], entries[meets], bits))
        entries = np.concatenate([none(self.order.entry_bytes), *parts])
        found = fields(entries)
        numbers = self.first_rows[found["file"]] + (found["row"] & ~DELETE_BIT).astype(np.int64)
        return [entries[np.argsort(numbers, kind="stable")]]

    def _has_new(self, run: NumberedRun) -> bool:
        return not self.settled[run.numbers[run.numbers >= 0]].all()

    def _meets(self, ordinals: npt.NDArray[np.int64], entries: Entries, new: Prefixes) -> npt.NDArray[np.bool_]:
        """For each entry: whether it is new, or a new entry may have its key. `new`: sorted prefixes of new digests."""
        meets = ~self.settled[ordinals]
        settled = np.flatnonzero(~meets)
        if len(new):
            prefixes = prefixes_of(entries)[settled]
            meets[settled] = new[np.minimum(np.searchsorted(new, prefixes), len(new) - 1)] == prefixes
        return meets

    def _live(self, order: Order, ordinals: npt.NDArray[np.int64], entries: Entries, bits: _InputBits) -> Entries:
        """The entries of live rows, with ordinals, sequence numbers and mixed digests. `order`: that of their run."""
        flagged = fields(entries)["row"]
        rows = (flagged & ~(DELETE_BIT | KEYLESS_BIT)).astype(np.int64)
        if (rows >= np.diff(self.first_rows)[ordinals]).any():
            raise IndexUnusableError("an entry names a row that its data file does not have")
        lives = bits.live(ordinals, rows)
        if (flagged[lives] & KEYLESS_BIT).any():
            raise InputError("a live row has no key")
        ordinals, entries = ordinals[lives], self.order.widened(entries[lives], order)
        fields(entries)["file"] = ordinals
        if self.order.has_sequence:
            written = sequences_of(entries)
            written = np.where(written == _UNKNOWN, self.sequences[ordinals], written)
            entries[:, DIGEST_BYTES : DIGEST_BYTES + 8] = sequence_bytes(written)
        spaces = self.key_spaces[ordinals]
        if len(spaces) and self.key_spaces.max() > 0:
            entries[:, :DIGEST_BYTES] ^= _mixes(int(self.key_spaces.max()) + 1)[spaces]
        return entries


def _mixes(count: int) -> npt.NDArray[np.uint8]:
    """The bytes to mix into the digests of each key space: (count, 20)."""
    digests = [hashlib.sha1(f"key space {number}".encode()).digest() for number in range(count)]
    return np.frombuffer(b"".join(digests), np.uint8).reshape(count, DIGEST_BYTES)


class _InputBits:
    """The live bitmaps of the inputs that have dead rows, end to end."""

    def __init__(self, store: ObjectStore, masks: Sequence[tuple[str, tuple[int, ...]]], inputs: int) -> None:
        self._starts = np.full(inputs, -1, np.int64)
        found, end = [np.empty(0, np.uint8)], 0
        for path, ordinals in masks:
            of_file = {int(ordinal): mask for ordinal, mask in read_masks(store, path).items()}
            for ordinal in ordinals:
                self._starts[ordinal] = end
                found.append(of_file[ordinal])
                end += len(of_file[ordinal])
        self._bits = np.concatenate(found)

    def live(self, ordinals: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        lives = np.ones(len(rows), bool)
        starts = self._starts[ordinals]
        masked = np.flatnonzero(starts >= 0)
        bits = self._bits[starts[masked] + (rows[masked] >> 3)] >> (rows[masked] & 7).astype(np.uint8)
        lives[masked] = (bits & 1).astype(bool)
        return lives
