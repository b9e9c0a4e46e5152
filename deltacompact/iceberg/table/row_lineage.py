"""Row lineage (version 3): each row has an id for life, and the sequence number of the commit that last changed it.

    a.parquet    first row id 100, sequence 7    row 0: nothing stored         _row_id 100    last updated by 7
                                                 row 1: id 17, no number       _row_id 17     last updated by 7
                                                 row 2: id 18, number 4        _row_id 18     last updated by 4

If a row's lineage is not stored, its file and its place there tell it. A writer that moves a row stores both values
(rules 19 and 22). A file without a first row id is older than the table's upgrade to version 3: its rows have no
lineage.
"""

from __future__ import annotations

import pyarrow as pa

from deltacompact.base.data_file import Fill
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.tabular.field_ids import FIELD_ID

ROW_ID = pa.field("_row_id", pa.int64(), metadata={FIELD_ID: "2147483540"})
LAST_UPDATED = pa.field("_last_updated_sequence_number", pa.int64(), metadata={FIELD_ID: "2147483539"})


def has_lineage(metadata: TableMetadata) -> bool:
    """Whether rows of the table may have lineage."""
    return metadata.format_version >= 3


def with_lineage(columns: pa.Schema) -> pa.Schema:
    """The columns of files that store lineage."""
    return pa.schema([*columns, ROW_ID, LAST_UPDATED])


def lineage_of(entry: ManifestEntry) -> tuple[Fill, ...]:
    """The fills for rows whose lineage is not stored."""
    file = entry.file
    if file.first_row_id is None:
        return ()
    return (
        Fill(ROW_ID, pa.scalar(file.first_row_id, pa.int64()), step=1, of_nulls=True),
        Fill(LAST_UPDATED, pa.scalar(entry.sequence, pa.int64()), of_nulls=True),
    )
