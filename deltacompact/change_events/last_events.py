"""What of a batch counts: for each key at most a delete, and then a delete or an upsert.

    rows in order      without sort keys          with a sort key
    insert             superseded                 at 1    superseded
    delete             superseded                 at 3    the greatest: deletes the key, and leaves a tombstone
    insert             lives                      at 2    came late: dead

One commit has all deletes in a first delta and all upserts in a second one. That folds to the same rows as a delta for
each row: of events with sort keys the greatest wins, of equal ones the last, whatever stands before and after. A delete
without sort values clears its key, so nothing before it counts. It must stay itself: it also clears what the table has.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.data_file import DataFile
from deltacompact.base.model import ContentType, OperationType
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.base.table_keys import TableKeys
from deltacompact.change_events.events import Events, Indices
from deltacompact.index.keys import Encoding, keyless, resolve_encoding
from deltacompact.index.sort_widths import longest_values

_KINDS = (OperationType.UPSERT, OperationType.DELETE)


def last_events(events: Events, keys: TableKeys, partition_keys: tuple[str, ...]) -> Events:
    """The events that count, of rows of one partition. Raises SchemaError for keys that cannot be compared."""
    both = (events.upserts, events.deletes)
    files = [_described(placed.rows, events.name, keys) for placed in both]
    encoding = resolve_encoding(keys, partition_keys, list(zip(_KINDS, files, strict=True)))
    order = np.argsort(np.concatenate([placed.places for placed in both]), kind="stable")
    named = [placed for placed in both if placed.rows.num_rows]
    if not named:
        return events
    groups = _numbered(np.vstack([encoding.digests(placed.rows, events.name) for placed in named]))[order]
    ranks = _numbered_in_order(np.vstack([encoding.sort_keys(placed.rows, events.name) for placed in named]))[order]
    kept = np.zeros(len(order), bool)
    kept[order[_counting(groups, ranks, _clearing(events, encoding)[order])]] = True
    upserts = events.upserts.rows.num_rows
    return Events(
        events.name,
        events.upserts.take(np.flatnonzero(kept[:upserts])),
        events.deletes.take(np.flatnonzero(kept[upserts:])),
    )


def _counting(groups: Indices, ranks: Indices, clears: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Indices:
    """The places of the events that count: of each key the last one that clears, and the greatest behind it."""
    cleared = np.full(int(groups.max()) + 1, -1)
    at = np.flatnonzero(clears)
    cleared[groups[at]] = at  # of a repeated index, the last assignment stays
    behind = np.flatnonzero(np.arange(len(groups)) > cleared[groups])
    ascending = behind[np.lexsort((behind, ranks[behind], groups[behind]))]
    is_last = np.append(np.diff(groups[ascending]) != 0, True)[: len(ascending)]
    return np.concatenate([cleared[cleared >= 0], ascending[is_last]])


def _clearing(events: Events, encoding: Encoding) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Deletes without sort values. Where the table has no sort keys, all deletes are; there the last event counts."""
    deletes = (
        keyless(events.deletes.rows, encoding) if encoding.sort_columns else np.zeros(len(events.deletes.places), bool)
    )
    return np.concatenate([np.zeros(len(events.upserts.places), bool), deletes])


def _described(rows: pa.Table, name: str, keys: TableKeys) -> DataFile:
    return DataFile(
        UNNUMBERED, name, ContentType.PARQUET, rows.num_rows, 0, rows.schema, longest=longest_values(rows, keys, name)
    )


def _numbered(values: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> Indices:
    """A number for each row of bytes: equal rows have equal numbers."""
    return np.asarray(_binary(values).dictionary_encode().indices, np.int64)


def _numbered_in_order(values: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> Indices:
    """As above; a greater row of bytes has a greater number."""
    if not values.shape[1]:
        return np.zeros(len(values), np.int64)
    encoded = _binary(values).dictionary_encode()
    ranks: Indices = np.empty(len(encoded.dictionary), np.int64)
    ranks[np.asarray(pc.sort_indices(encoded.dictionary))] = np.arange(len(ranks))
    found: Indices = ranks[np.asarray(encoded.indices)]
    return found


def _binary(values: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> pa.Array:
    rows, width = values.shape
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), rows, [None, pa.py_buffer(np.ascontiguousarray(values))]
    )
