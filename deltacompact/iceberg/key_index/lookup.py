"""Task: the rows of deleted keys, looked up in an index. No data file is opened.

    deleted     digest(7) by a delete of sequence 6, in key set 0
    index       digest(7) | a.parquet, row 0        sequence 5: dead
                digest(7) | b.parquet, row 0        sequence 6: lives (rule 1)
                digest(7) | c.parquet, row 9        not in the table any more

A task looks up one bucket of keys, of all key sets by the same columns: a key set belongs to a partition, the index to
the table. It reads only blocks that may have one of the keys. The dead rows are written as numbers, counted through all
files, in one batch for each group of files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact import _kernels
from deltacompact.base import compute as pc
from deltacompact.base.distinct import distinct_numbers
from deltacompact.iceberg.deletes.delete_keys import as_arrow, digests, prefixes, read_buckets
from deltacompact.iceberg.key_index.blocks import of_prefixes
from deltacompact.iceberg.key_index.document import IndexUnusableError
from deltacompact.iceberg.key_index.entering import NumberedRun, numbered
from deltacompact.iceberg.key_index.order import Order
from deltacompact.index import entries as packed
from deltacompact.index.entries import Entries, fields
from deltacompact.index.keys import Encoding
from deltacompact.storage.objects import ObjectStore

PLAIN = Order(Encoding(()), False)
"""The order of entries that are looked up: a digest and a place."""


@dataclass(frozen=True, slots=True)
class DeletedBy:
    """Enters rows under the digest of the columns of equality deletes. `columns` are named by their field ids."""

    columns: pa.Schema

    @property
    def order(self) -> Order:
        return PLAIN

    def entries(self, table: pa.Table, rows: npt.NDArray[np.uint64], number: int, path: str) -> Entries:
        return _kernels.pack_entries(
            digests(table, self.columns, path), np.empty((len(rows), 0), np.uint8), number, rows
        )


@dataclass(frozen=True, slots=True)
class AskedFiles:
    """The data files whose dead rows are wanted, by ordinal.

    sequences     the data sequence number of each file
    first_rows    the number of each file's first row, counted through all files; at the end, the number of all rows
    pairs         sorted: key set * files + ordinal, for each file of which the key set may delete rows
    groups        ranges of ordinals: each belongs to one task that needs the dead rows
    """

    sequences: npt.NDArray[np.int64]
    first_rows: npt.NDArray[np.int64]
    pairs: npt.NDArray[np.int64]
    groups: tuple[range, ...]

    def are_paired(self, key_sets: npt.NDArray[np.int64], ordinals: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """For each pair of a key set and an ordinal: whether the key set may delete rows of the file."""
        codes = key_sets * len(self.sequences) + ordinals
        places = np.minimum(np.searchsorted(self.pairs, codes), len(self.pairs) - 1)
        found: npt.NDArray[np.bool_] = self.pairs[places] == codes
        return found


@dataclass(frozen=True, slots=True)
class LookupTask:
    """Looks up keys in runs of the index, and writes the numbers of dead rows to `path`.

    `keys`: key set number, and the files with its keys.
    """

    keys: tuple[tuple[int, tuple[str, ...]], ...]
    runs: tuple[NumberedRun, ...]
    asked: AskedFiles
    path: str


def look_up(store: ObjectStore, task: LookupTask) -> None:
    """Raises IndexUnusableError."""
    keys = list(read_buckets(store, (paths for _, paths in task.keys)))
    key_sets = np.repeat([number for number, _ in task.keys], [table.num_rows for table in keys]).astype(np.int64)
    keyed = pa.concat_tables(keys)
    dead = [np.empty(0, np.int64)]
    if keyed.num_rows:
        dead += _dead(store, task, keyed, key_sets)
    numbers = distinct_numbers(np.concatenate(dead))
    with store.writer(task.path) as sink, pa.ipc.new_file(sink, pa.schema([("row", pa.int64())])) as out:
        for group in task.asked.groups:
            bounds = task.asked.first_rows[[group.start, group.stop]]
            start, stop = np.searchsorted(numbers, bounds)
            out.write_batch(pa.record_batch([pa.array(numbers[start:stop])], names=["row"]))


def _dead(
    store: ObjectStore, task: LookupTask, keyed: pa.Table, key_sets: npt.NDArray[np.int64]
) -> Iterator[npt.NDArray[np.int64]]:
    """The numbers of rows whose key has a newer delete in a key set of their file."""
    dictionary = keyed["digest"].combine_chunks().dictionary_encode()
    distinct = dictionary.dictionary
    of_digest = np.asarray(dictionary.indices)
    by_digest = np.argsort(of_digest, kind="stable")
    counts = np.bincount(of_digest, minlength=len(distinct))
    starts = np.cumsum(counts) - counts
    deleted = np.asarray(keyed["sequence"])
    wanted_prefixes = np.sort(prefixes(distinct))
    asked = task.asked
    for run in task.runs:
        for block in of_prefixes(store, run.files, PLAIN.entry_bytes, wanted_prefixes):
            found = pc.index_in(as_arrow(packed.digests(block)), value_set=distinct)
            hit = np.asarray(pc.is_valid(found))
            ordinals, entries = numbered(block[hit], run.numbers)
            wanted = run.numbers[fields(block[hit])["file"]] >= 0
            digest = np.asarray(found.drop_null())[wanted]
            # a digest may be in several key sets: one pair (row, delete) for each
            row = np.repeat(np.arange(len(digest)), counts[digest])
            step = np.arange(len(row)) - np.repeat(np.cumsum(counts[digest]) - counts[digest], counts[digest])
            key = by_digest[np.repeat(starts[digest], counts[digest]) + step]
            of_file = ordinals[row]
            dies = (asked.sequences[of_file] < deleted[key]) & asked.are_paired(key_sets[key], of_file)
            rows = fields(entries)["row"].astype(np.int64)
            if (rows >= np.diff(asked.first_rows)[ordinals]).any():
                raise IndexUnusableError("an entry names a row that its data file does not have")
            yield (asked.first_rows[of_file] + rows[row])[dies]
