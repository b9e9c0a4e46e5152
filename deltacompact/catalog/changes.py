"""What changed in a table of either kind, as a function of the package."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

from deltacompact.base.shared_arguments import ChangesOptions
from deltacompact.base.user_calls import user_call
from deltacompact.catalog.opening import is_iceberg_catalog

if TYPE_CHECKING:
    import pyarrow as pa

    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog


@user_call
def changes(
    catalog: DeltaStreamCatalog | IcebergCatalog,
    table_id: str,
    from_: str | int | datetime | None = None,
    to: str | int | datetime | None = None,
    *,
    partition: Any = None,
    branch: str = "main",
    bookmark: str | None = None,
    **asked: Unpack[ChangesOptions],
) -> pa.RecordBatchReader:
    """Which rows came, went and changed after `from_` (None: from the beginning), up to `to` (None: now).

    catalog       what open_catalog returned; `table_id`: the table, of an Iceberg catalog "namespace.table"
    from_, to     a version of a stream, by name or number, as it was when it was sealed; an Iceberg snapshot's id, a
                  branch or a tag; or a time. `from_`: a bookmark's name, too, for what came since it was committed
    per_commit    what each commit changed (default: the net change, the first before and the last after)
    before        of updates also what was before
    columns       names (default: all), and `where`, a text like "total > 9" or what `read` takes as filter: the feed is
                  that of `SELECT columns FROM table WHERE where`
    key           the columns that identify a row (default: the primary key, or the identifier fields): rows of one key
                  that came and went are an update; without a key, they are an insert and a delete
    memory_bytes  what this process may take in all (default: no bound; it holds about 512 MiB of changes)
    partition     of a stream; `branch`: of an Iceberg table
    bookmark      what came since this consumer's last `commit_bookmark`, the same batch until then; see the table

    Behind the columns stand `_change_type` (insert, delete, update_before, update_after), `_change_ordinal` of the
    commit, `_commit_snapshot_id` (of a stream its last position) and `_commit_timestamp`; of a net change those of the
    last commit. Files that both ends have are not opened, unless rows of them came or went.

    Raises NotFoundError for a version or snapshot that is not there any more, InputError for an unknown column.

    Examples:
        >>> deltacompact.changes(catalog, "orders", "0", columns=["id"]).read_all().num_rows
        1
    """
    if is_iceberg_catalog(catalog):
        return catalog.table(table_id).changes(from_, to, branch, bookmark=bookmark, **asked)
    return catalog.table(table_id).changes(from_, to, partition, bookmark=bookmark, **asked)  # type: ignore[arg-type]
