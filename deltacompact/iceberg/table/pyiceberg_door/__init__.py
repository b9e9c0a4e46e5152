"""The only room that imports PyIceberg: catalogs, table metadata, expressions, column metrics and the commit.

    open_named("prod")          the catalog that .pyiceberg.yaml or PYICEBERG_CATALOG__PROD__… describes
    IcebergTable.load(…)        a table; `metadata` has its metadata when it was loaded, as our own plain values
    table.commit(…)             one snapshot, by the public `Catalog.commit_table`, under requirements

We use PyIceberg for what it does right: catalogs, types, and metrics from Parquet footers. Its manifests drop fields,
its producers know neither `replace` nor delete files, its validation misses deletes; those are our own.

table          a loaded table: what the rest of the code sees
views          catalogs whose metadata files go through our store
catalogs       opening catalogs
rest_sessions  REST catalogs, and how long one that is silent is waited for
errors         what PyIceberg raises, as our errors
plain          PyIceberg's metadata as our own plain values
neighbours     the other tables of a catalog, and where their files may lie
creating       tables and columns that we make ourselves
commits        requirements and updates of a commit, and its outcome
version_3      metadata of version 3, which PyIceberg reads but does not write
where          expressions about files
row_filters    expressions about rows
partitions     in which partition of another spec a file lies
transforms     partition values of rows, computed by pyiceberg-core
metrics        column counts and bounds of a Parquet file
behaviour      tries the parts of PyIceberg that we use and that are not public, once in a process
release        refuses a release that does not fit
"""

from deltacompact.iceberg.table.pyiceberg_door.release import importing

with importing():
    from deltacompact.iceberg.table.pyiceberg_door.catalogs import Catalog, is_catalog, open_named
    from deltacompact.iceberg.table.pyiceberg_door.errors import (
        CommitRefusedError,
        CommitThrottledError,
        CommitUnansweredError,
    )
    from deltacompact.iceberg.table.pyiceberg_door.neighbours import Neighbour, UnlistedError, asked_at_once, listed
    from deltacompact.iceberg.table.pyiceberg_door.table import IcebergTable

__all__ = [
    "Catalog",
    "CommitRefusedError",
    "CommitThrottledError",
    "CommitUnansweredError",
    "IcebergTable",
    "Neighbour",
    "UnlistedError",
    "asked_at_once",
    "is_catalog",
    "listed",
    "open_named",
]
