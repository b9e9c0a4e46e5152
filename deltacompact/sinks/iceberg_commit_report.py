"""A commit to an Iceberg table as OpenLineage's facet `icebergCommitReport`: what Spark's listener says of its commits.

    added-data-files 1         addedDataFiles 1                  names of a snapshot's summary, and of the facet
    deleted-data-files 40      removedDataFiles 40
    added-dvs 2                addedDVs 2
    changed-partition-count    (the facet has no field for it)

Source: OpenLineage, spec/registry/iceberg/facets/IcebergCommitReportOutputDatasetFacet.json, 1-0-2.
"""

from __future__ import annotations

from collections.abc import Mapping

NAME = "icebergCommitReport"
SCHEMA_URL = (
    "https://openlineage.io/spec/facets/1-0-2/IcebergCommitReportOutputDatasetFacet.json"
    "#/$defs/IcebergCommitReportOutputDatasetFacet"
)
_FIELDS = {
    "added-data-files": "addedDataFiles",
    "deleted-data-files": "removedDataFiles",
    "total-data-files": "totalDataFiles",
    "added-delete-files": "addedDeleteFiles",
    "added-equality-delete-files": "addedEqualityDeleteFiles",
    "added-position-delete-files": "addedPositionalDeleteFiles",
    "added-dvs": "addedDVs",
    "removed-delete-files": "removedDeleteFiles",
    "removed-equality-delete-files": "removedEqualityDeleteFiles",
    "removed-position-delete-files": "removedPositionalDeleteFiles",
    "removed-dvs": "removedDVs",
    "total-delete-files": "totalDeleteFiles",
    "added-records": "addedRecords",
    "deleted-records": "removedRecords",
    "total-records": "totalRecords",
    "added-files-size": "addedFilesSizeInBytes",
    "removed-files-size": "removedFilesSizeInBytes",
    "total-files-size": "totalFilesSizeInBytes",
    "added-position-deletes": "addedPositionalDeletes",
    "removed-position-deletes": "removedPositionalDeletes",
    "total-position-deletes": "totalPositionalDeletes",
    "added-equality-deletes": "addedEqualityDeletes",
    "removed-equality-deletes": "removedEqualityDeletes",
    "total-equality-deletes": "totalEqualityDeletes",
}
"""Names of a summary, by the names of the facet."""


def commit_metrics(summary: Mapping[str, str], attempts: int) -> dict[str, int]:
    """The facet's `commitMetrics`. What the summary does not count is left out."""
    counts = {field: int(summary[name]) for name, field in _FIELDS.items() if name in summary}
    return {"attempts": attempts, **counts}
