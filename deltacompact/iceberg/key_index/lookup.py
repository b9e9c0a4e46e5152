"""Task: the rows of deleted keys, looked up in an index. No data file is opened.

    deleted     digest(7) by a delete of sequence 6, in key set 0
    index       digest(7) | a.parquet, row 0        sequence 5: dead
                digest(7) | b.parquet, row 0        sequence 6: lives (rule 1)
                digest(7) | c.parquet, row 9        not in the table any more

A task has one bucket of the keys of all key sets by the same columns: a key set is bound to a partition, the index is
not. Only blocks are read that may have one of the keys. Dead rows are stored as numbers of rows of all files together,
a batch for each group of files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deltacompact import _kernels
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
    """How rows are entered to be found by equality deletes. `columns` are named by their field ids."""

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
    """The data files that are asked about, by ordinal.

    sequences     the data sequence number of each
    first_rows    the number of each file's first row, counted over all files
    pairs         in order: key set * files + ordinal, if the key set may delete rows of the file
    groups        consecutive files, for the tasks that want the dead rows
    """

    sequences: npt.NDArray[np.int64]
    first_rows: npt.NDArray[np.int64]
    pairs: npt.NDArray[np.int64]
    groups: tuple[range, ...]

    def are_paired(self, key_sets: npt.NDArray[np.int64], ordinals: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whether each of these key sets may delete rows of the file beside it."""
        codes = key_sets * len(self.sequences) + ordinals
        places = np.minimum(np.searchsorted(self.pairs, codes), len(self.pairs) - 1)
        found: npt.NDArray[np.bool_] = self.pairs[places] == codes
        return found


@dataclass(frozen=True, slots=True)
class LookupTask:
    """Looks up the keys in these files, by key set. The numbers of dead rows go to `path`."""

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
    """The numbers of rows that a newer delete of a key set of their file has."""
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
            # a digest may be in several key sets: each of them is asked
            row = np.repeat(np.arange(len(digest)), counts[digest])
            step = np.arange(len(row)) - np.repeat(np.cumsum(counts[digest]) - counts[digest], counts[digest])
            key = by_digest[np.repeat(starts[digest], counts[digest]) + step]
            of_file = ordinals[row]
            dies = (asked.sequences[of_file] < deleted[key]) & asked.are_paired(key_sets[key], of_file)
            rows = fields(entries)["row"].astype(np.int64)
            if (rows >= np.diff(asked.first_rows)[ordinals]).any():
                raise IndexUnusableError("an entry names a row that its data file does not have")
            yield (asked.first_rows[of_file] + rows[row])[dies]
