"""Fingerprints of a table's states, held against what was recorded, and against each other where no row may differ.

delta stream    compacted rows   2:de64…   as recorded
                live rows        3:07c9…                    deltas are folded in that came later
Iceberg         snapshot 7       2:de64…
                snapshot 9       2:de64…   as recorded      ours: it must have the rows of 7

`by` says who adds up: our kernel ("self"), or "duckdb", by the statement that anyone can run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltacompact.base.deltas import CompactedDelta
from deltacompact.base.errors import CorruptionError, DeltaCompactError, InputError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.base.model import Partition
from deltacompact.delta_streams.appending.advice import advising
from deltacompact.delta_streams.scan import with_keys_of
from deltacompact.delta_streams.snapshots import everything
from deltacompact.reading.engines import computed_by_duckdb
from deltacompact.reading.live_rows import live_parts, schema_of
from deltacompact.reading.parts import read_in_order
from deltacompact.table.ports import PartitionSnapshot
from deltacompact.tabular import schemas
from deltacompact.tabular.fingerprint import fingerprint_of
from deltacompact.tabular.fingerprint_sql import fingerprint_statement, spark_name

if TYPE_CHECKING:
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog
    from deltacompact.delta_streams.log.state import StreamState

SELF = "self"
DUCKDB = "duckdb"
SPARK = "spark"
LIVE = "live_rows"
"""What the rows are called in a statement."""


@dataclass(frozen=True, slots=True)
class StateFingerprint:
    """What a state's rows add up to, and what its log entry or summary says. None: nothing is recorded."""

    state: str
    found: Fingerprint
    recorded: Fingerprint | None = None

    @property
    def ok(self) -> bool:
        return self.recorded in (None, self.found)

    def __str__(self) -> str:
        said = "" if self.recorded is None else ", as recorded" if self.ok else f", but {self.recorded} is recorded"
        return f"{self.state} {self.found}{said}"


@dataclass(frozen=True, slots=True)
class FingerprintReport:
    """The fingerprints of a partition, or of a branch. Where `alike`, all states must have the same rows."""

    table_id: str
    place: str
    by: str
    states: tuple[StateFingerprint, ...]
    alike: bool = False

    @property
    def ok(self) -> bool:
        differ = self.alike and len({state.found for state in self.states}) > 1
        return not differ and all(state.ok for state in self.states)

    def document(self) -> dict[str, Any]:
        """As JSON: fingerprints in their text form."""
        states = [
            {
                "state": certified.state,
                "fingerprint": str(certified.found),
                "recorded": certified.recorded and str(certified.recorded),
            }
            for certified in self.states
        ]
        return {"table": self.table_id, "place": self.place, "by": self.by, "states": states, "ok": self.ok}

    def __str__(self) -> str:
        found = "; ".join(map(str, self.states)) or "there is no row yet"
        return f"{self.table_id}, {self.place}: {'' if self.ok else 'NOT VALID: '}{found}"


def _computed(by: str, schema: pa.Schema, tables: Iterator[pa.Table], where: str) -> Fingerprint:
    if by == SELF or not schema.names:  # DuckDB has no table without columns; where there is none, no row is
        return fingerprint_of(tables, schema, where)
    failed: list[DeltaCompactError] = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for table in tables:
                yield from table.to_batches()
        except DeltaCompactError as error:
            failed.append(error)
            raise

    reader = pa.RecordBatchReader.from_batches(schemas.unmarked(schema), batches())
    try:
        text = computed_by_duckdb(fingerprint_statement(schema, LIVE, by), LIVE, reader)
    except Exception:
        if failed:  # DuckDB has an error of its own, of many lines
            raise failed[0] from None
        raise
    return _whole(text, f"DuckDB on {where}") or Fingerprint()


def _whole(text: str | None, said_by: str) -> Fingerprint | None:
    """The fingerprint of a text; None: there is none. Raises CorruptionError where the text is none."""
    try:
        return Fingerprint.certain(text)
    except ValueError as error:
        raise CorruptionError(f"{said_by} says that {error}") from error


def statement(catalog: DeltaStreamCatalog | IcebergCatalog, table_id: str, by: str) -> str:
    """What adds up the fingerprint of a table in DuckDB, where the rows go by "live_rows", or in Spark."""
    from deltacompact.catalog.opening import is_iceberg_catalog

    if by == SELF:
        raise InputError("only spark and duckdb take SQL: give --by spark or --by duckdb")
    if is_iceberg_catalog(catalog):
        relation = spark_name(catalog.name, *table_id.split(".")) if by == SPARK else LIVE
        return fingerprint_statement(catalog.metadata(table_id).schema, relation, by, uuids=True)
    return fingerprint_statement(catalog.table(table_id).scan().schema, LIVE, by)


def partition_fingerprints(
    catalog: DeltaStreamCatalog, table_id: str, partition: Partition, by: str
) -> FingerprintReport:
    """Those of the compacted rows, and of the live rows where deltas came later."""
    state = catalog.state(table_id, partition)
    whole = everything(table_id, partition, state)
    found = []
    with advising(catalog, table_id, partition, state):
        if state.compacted is not None:
            rows = _stream_rows(catalog, state, replace(whole, deltas=()))
            sum_ = _computed(by, *rows, where=table_id)
            found.append(StateFingerprint("compacted rows", sum_, _recorded(state.compacted, partition)))
        if state.deltas:
            found.append(StateFingerprint("live rows", _computed(by, *_stream_rows(catalog, state, whole), table_id)))
    return FingerprintReport(table_id, f"partition {partition}", by, tuple(found))


def _recorded(compacted: CompactedDelta, partition: Partition) -> Fingerprint | None:
    """What the log says. None also where only some files have the partition's columns: readers fill them in."""
    filled = {name for name, _ in partition.values}
    have = {frozenset(filled.intersection(file.schema.names)) for file in compacted.files}
    return compacted.fingerprint if len(have) <= 1 else None


def _stream_rows(
    catalog: DeltaStreamCatalog, state: StreamState, snapshot: PartitionSnapshot
) -> tuple[pa.Schema, Iterator[pa.Table]]:
    table = with_keys_of(catalog, catalog.described(snapshot.source_table_id), [state])
    schema = schemas.unmarked(schema_of(snapshot))
    found = live_parts(catalog.store, snapshot, table, schema, catalog.read_limits)
    return schema, read_in_order(found.parts, catalog.at_once)


def branch_fingerprints(
    catalog: IcebergCatalog,
    table_id: str,
    branch: str = "main",
    before: int | None = None,
    after: int | None = None,
    by: str = SELF,
) -> FingerprintReport:
    """Those of two snapshots that must have the same rows (`iceberg/comparison.py`), or else that of the head."""
    chosen, table = catalog.comparison(table_id, branch, before, after), catalog.table(table_id)
    metadata = catalog.metadata(table_id)
    head = metadata.branch(branch)
    numbers = [number for number in (chosen.before, chosen.after) if number is not None]
    if not numbers and head is not None:
        numbers = [head.snapshot_id]

    def found_of(number: int) -> Fingerprint:
        if by == SELF:
            return table.fingerprint(branch, as_of=number)
        rows = table.scan(branch=branch, as_of=number)
        return _computed(by, metadata.schema, (pa.Table.from_batches([batch]) for batch in rows), table_id)

    def state(number: int) -> StateFingerprint:
        recorded = metadata.recorded_fingerprint(metadata.snapshots[number])
        known = _whole(recorded, f"the summary of snapshot {number} of table {table_id!r}")
        return StateFingerprint(f"snapshot {number}", found_of(number), known)

    return FingerprintReport(table_id, f"branch {branch}", by, tuple(map(state, numbers)), alike=True)
