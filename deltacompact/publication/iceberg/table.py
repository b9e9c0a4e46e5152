"""An Iceberg table that shows compacted rows: checks it, creates it, adds columns, and commits one snapshot for a run.

head            a, b, c
wanted          a, b, d     ->  one snapshot that adds d and removes c
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from deltacompact.base.errors import InputError, NotFoundError, OutcomeUnknownError
from deltacompact.iceberg.commit.committer import Committer
from deltacompact.iceberg.commit.proposal import APPEND, DELETE, OVERWRITE, Proposal, addition
from deltacompact.iceberg.table.metadata import MAIN, PUBLICATION, PUBLISHES
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.publication.columns import refuse_required
from deltacompact.publication.iceberg.columns import has_coarse_times, with_widest_keys
from deltacompact.publication.iceberg.difference import IcebergDifference, difference
from deltacompact.publication.iceberg.files import IcebergFiles
from deltacompact.publication.port import FilesToShow, ShownCommit, ShownFile, Source, shows_another
from deltacompact.tabular.published_types import ICEBERG_TYPES

_FORMAT_VERSION = 2
_CREATED_WITH = {"format-version": str(_FORMAT_VERSION), "write.metadata.delete-after-commit.enabled": "true"}
"""Each commit writes a metadata file of its own, and then deletes the oldest: without that, all would stay."""
_VECTORIZED = "read.parquet.vectorization.enabled"


class ShownIcebergTable:
    """The Iceberg table of one run. `catalog` is PyIceberg's."""

    def __init__(self, catalog: Any, table_id: str, source: Source) -> None:
        self._catalog = catalog
        self._table_id = table_id
        self._source = source
        self._name = f"Iceberg table {table_id!r}"
        self._table = self._found()
        self._files: IcebergFiles | None = None

    @property
    def columns(self) -> pa.Schema | None:
        return None if self._table is None else ICEBERG_TYPES.columns(self._table.metadata.schema, self._name)

    @property
    def shows_nothing(self) -> bool:
        return self._table is None or self._table.metadata.branch(MAIN) is None

    def prepare(self, columns: pa.Schema, stored: Iterable[pa.Schema] = ()) -> None:
        """Give the Iceberg table these columns now: create it, or add them in a commit of their own.

        Iceberg's vectorized reader in Spark takes milliseconds for microseconds, so it is switched off for them.
        """
        wanted = self._properties
        if any(map(has_coarse_times, {id(schema): schema for schema in stored}.values())):
            wanted |= {_VECTORIZED: "false"}
        columns = with_widest_keys(columns, () if self.columns is None else self.columns.names)
        if self._table is None:
            IcebergTable.create(self._catalog, self._table_id, columns, self._source.keys, _CREATED_WITH | wanted)
            self._table = self._loaded()  # another publisher may have created it, and somebody dropped it
        known = self._table.metadata.properties
        settled = (wanted.items() | known.items()) == known.items()
        if not (settled and columns.equals(self.columns)):
            self._table = self._table.with_columns(columns, wanted)

    def check(self, files: Sequence[ShownFile]) -> None:
        self._listed.data(tuple(files))

    def show(self, wanted: Callable[[], FilesToShow]) -> ShownCommit:
        assert self._table is not None
        files, store = self._listed, self._table.store
        committer = Committer(store, StateReader(store), MAIN, f"{PUBLISHES}{uuid.uuid4().hex[:8]}")

        def propose(head: TableState) -> Proposal[_Proposed]:
            """The difference on this head. The streams are read again, after the head."""
            now = wanted()
            found = difference(head, self._source, now)
            data, dead = files.data(found.data), files.dead(found.dead)
            added = tuple(addition(file) for file in (*data, *dead))
            return Proposal(_operation(found), found.removed, added, _Proposed(found, now.deltas_left_out))

        try:
            done = committer.commit(self._table, propose)
        except OutcomeUnknownError:
            raise  # the snapshot may be there, so its files stay
        except Exception:
            files.discard()
            raise
        found = done.outcome.found
        files.discard(kept=found.dead)
        return ShownCommit(
            done.snapshot.snapshot_id if done.snapshot else None,
            len(found.data),
            sum(entry.file.is_data for entry in found.removed),
            len(found.dead),
            done.outcome.deltas_left_out,
        )

    @property
    def _listed(self) -> IcebergFiles:
        assert self._table is not None
        if self._files is None:
            self._files = IcebergFiles(self._source.store, self._table.store, self._table)
        return self._files

    @property
    def _properties(self) -> dict[str, str]:
        """With gc.enabled off, an engine that expires snapshots or drops the table does not delete the stream's
        files."""
        return {PUBLICATION: self._source.shows, "gc.enabled": "false"}

    def _found(self) -> IcebergTable | None:
        try:
            return self._loaded()
        except NotFoundError:
            return None

    def _loaded(self) -> IcebergTable:
        table = IcebergTable.load(self._catalog, self._table_id)
        self._check(table)
        return table

    def _check(self, table: IcebergTable) -> None:
        """Raise InputError for an Iceberg table that cannot show these rows, or that is not ours."""
        metadata, name, keys = table.metadata, self._name, self._source.keys
        if metadata.format_version != _FORMAT_VERSION:
            raise InputError(
                f"{name} has format version {metadata.format_version}: publications have version {_FORMAT_VERSION}"
            )
        shows = metadata.properties.get(PUBLICATION)
        if shows not in (None, self._source.shows):
            raise shows_another(name, shows, self._source)
        if shows is None and metadata.branch(MAIN) is not None:
            raise InputError(f"{name} has rows of its own: a publication needs a new or empty table")
        spec = metadata.specs[metadata.default_spec_id]
        names = {number: column.field.name for number, column in metadata.columns.items()}
        fields = [(names.get(part.source_id, "a column that is gone"), part.transform) for part in spec.fields]
        if fields != [(key, "identity") for key in keys]:
            by = ", ".join(f"{transform}({column})" for column, transform in fields) or "nothing"
            raise InputError(f"{name} is partitioned by {by}, the delta table by {list(keys)}")
        refuse_required(metadata.schema, name)


@dataclass(frozen=True, slots=True)
class _Proposed:
    """The changes of an attempt, and the number of deltas that were not compacted then."""

    found: IcebergDifference
    deltas_left_out: int


def _operation(found: IcebergDifference) -> str:
    """The operation of the snapshot, as the spec names it. A snapshot with delete files is not an append."""
    if found.dead or (found.data and found.removed):
        return OVERWRITE
    return DELETE if found.removed else APPEND
