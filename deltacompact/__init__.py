"""deltacompact: folds the deltas of merge-on-read tables into a few large files, one live row per key, with Ray.

Names are imported at their first use, so `deltacompact --help` loads neither numpy nor pyarrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltacompact.base.data_file import DataFile
    from deltacompact.base.deltas import Appended, Delta
    from deltacompact.base.errors import (
        ClusterError,
        ConflictError,
        CorruptionError,
        CredentialsError,
        DeltaCompactError,
        InputError,
        Interrupted,
        NotFoundError,
        OutcomeUnknownError,
        PassingError,
        PositionError,
        SchemaError,
        StoreError,
        UnhealthyError,
    )
    from deltacompact.base.model import ContentType, OperationType
    from deltacompact.base.settings import Settings
    from deltacompact.base.table_keys import PARTITION_STREAM_POS_VIRTUAL_COL_NAME, SortKey
    from deltacompact.base.thresholds import Thresholds
    from deltacompact.catalog.changes import changes
    from deltacompact.catalog.compact import compact
    from deltacompact.catalog.delta_stream_table import DeltaStreamTable
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog
    from deltacompact.catalog.iceberg_table import IcebergCatalogTable
    from deltacompact.catalog.opening import open_catalog
    from deltacompact.catalog.table_plan import TablePlan
    from deltacompact.delta_streams.taking_out import retract_file
    from deltacompact.delta_streams.versions import retract, rollback
    from deltacompact.iceberg_modes.convert.result import ConvertResult
    from deltacompact.iceberg_modes.maintain.result import MaintainResult
    from deltacompact.iceberg_modes.result import ModeResult
    from deltacompact.iceberg_modes.rewrite.result import RewriteResult
    from deltacompact.iceberg_modes.upsert.result import UpsertResult
    from deltacompact.maintenance.check import check
    from deltacompact.maintenance.vacuum.vacuum import vacuum
    from deltacompact.publication.publication import PublicationResult
    from deltacompact.reports.health import TableHealth
    from deltacompact.results import CompactionResult, SessionResult
    from deltacompact.storage.s3_access import S3Settings

__all__ = [
    "PARTITION_STREAM_POS_VIRTUAL_COL_NAME",
    "Appended",
    "ClusterError",
    "CompactionResult",
    "ConflictError",
    "ContentType",
    "ConvertResult",
    "CorruptionError",
    "CredentialsError",
    "DataFile",
    "Delta",
    "DeltaCompactError",
    "DeltaStreamCatalog",
    "DeltaStreamTable",
    "IcebergCatalog",
    "IcebergCatalogTable",
    "InputError",
    "Interrupted",
    "MaintainResult",
    "ModeResult",
    "NotFoundError",
    "OperationType",
    "OutcomeUnknownError",
    "PassingError",
    "PositionError",
    "PublicationResult",
    "RewriteResult",
    "S3Settings",
    "SchemaError",
    "SessionResult",
    "Settings",
    "SortKey",
    "StoreError",
    "TableHealth",
    "TablePlan",
    "Thresholds",
    "UnhealthyError",
    "UpsertResult",
    "changes",
    "check",
    "compact",
    "open_catalog",
    "retract",
    "retract_file",
    "rollback",
    "vacuum",
]

_MODULES = {
    "catalog.changes": ("changes",),
    "catalog.delta_streams": ("DeltaStreamCatalog",),
    "catalog.delta_stream_table": ("DeltaStreamTable",),
    "catalog.iceberg_table": ("IcebergCatalogTable",),
    "catalog.table_plan": ("TablePlan",),
    "maintenance.vacuum.vacuum": ("vacuum",),
    "delta_streams.taking_out": ("retract_file",),
    "delta_streams.versions": ("retract", "rollback"),
    "catalog.iceberg": ("IcebergCatalog",),
    "iceberg_modes.convert.result": ("ConvertResult",),
    "iceberg_modes.upsert.result": ("UpsertResult",),
    "iceberg_modes.maintain.result": ("MaintainResult",),
    "iceberg_modes.rewrite.result": ("RewriteResult",),
    "iceberg_modes.result": ("ModeResult",),
    "catalog.opening": ("open_catalog",),
    "publication.publication": ("PublicationResult",),
    "catalog.compact": ("compact",),
    "results": ("CompactionResult", "SessionResult"),
    "base.model": ("ContentType", "OperationType"),
    "base.table_keys": ("PARTITION_STREAM_POS_VIRTUAL_COL_NAME", "SortKey"),
    "base.data_file": ("DataFile",),
    "base.deltas": ("Appended", "Delta"),
    "maintenance.check": ("check",),
    "base.thresholds": ("Thresholds",),
    "reports.health": ("TableHealth",),
    "storage.s3_access": ("S3Settings",),
    "base.settings": ("Settings",),
    "base.errors": (
        "ClusterError",
        "ConflictError",
        "CorruptionError",
        "CredentialsError",
        "DeltaCompactError",
        "InputError",
        "Interrupted",
        "NotFoundError",
        "OutcomeUnknownError",
        "PassingError",
        "PositionError",
        "SchemaError",
        "StoreError",
        "UnhealthyError",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        # The metadata of the installation say so too, but reading them imports 30 modules: a tenth of a small session.
        return importlib.import_module(f"{__name__}._kernels").VERSION
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    """A user's words: Tab shows no other."""
    return [*__all__, "__version__"]
