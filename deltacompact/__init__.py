"""deltacompact: folds the deltas of merge-on-read tables into a few large files, one live row per key, with Ray.

Names are imported at their first use, so `deltacompact --help` loads neither numpy nor pyarrow.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltacompact.base.errors import (
        ConflictError,
        CorruptionError,
        DeltaCompactError,
        InputError,
        Interrupted,
        NotFoundError,
        OutcomeUnknownError,
        PositionError,
        SchemaError,
        StoreError,
    )
    from deltacompact.base.model import (
        PARTITION_STREAM_POS_VIRTUAL_COL_NAME,
        ContentType,
        DataFile,
        Delta,
        OperationType,
        SortKey,
    )
    from deltacompact.base.settings import Settings
    from deltacompact.catalog.delta_stream.catalog import DeltaStreamCatalog
    from deltacompact.catalog.delta_stream.taking_out import retract_file
    from deltacompact.catalog.delta_stream.vacuum.vacuum import vacuum
    from deltacompact.catalog.delta_stream.versions import retract, rollback
    from deltacompact.catalog.iceberg.catalog import IcebergCatalog
    from deltacompact.catalog.iceberg.convert.convert import ConvertResult
    from deltacompact.catalog.iceberg.maintain.maintain import MaintainResult
    from deltacompact.catalog.iceberg.rewrite.result import RewriteResult
    from deltacompact.catalog.iceberg.upsert.upsert import UpsertResult
    from deltacompact.catalog.opening import open_catalog
    from deltacompact.catalog.publication.publication import PublicationResult
    from deltacompact.compact import compact
    from deltacompact.maintenance.check import check
    from deltacompact.results import CompactionResult, SessionResult
    from deltacompact.storage.s3_access import S3Settings

__version__ = "0.1.0"

__all__ = [
    "PARTITION_STREAM_POS_VIRTUAL_COL_NAME",
    "CompactionResult",
    "ConflictError",
    "ContentType",
    "ConvertResult",
    "CorruptionError",
    "DataFile",
    "Delta",
    "DeltaCompactError",
    "DeltaStreamCatalog",
    "IcebergCatalog",
    "InputError",
    "Interrupted",
    "MaintainResult",
    "NotFoundError",
    "OperationType",
    "OutcomeUnknownError",
    "PositionError",
    "PublicationResult",
    "RewriteResult",
    "S3Settings",
    "SchemaError",
    "SessionResult",
    "Settings",
    "SortKey",
    "StoreError",
    "UpsertResult",
    "check",
    "compact",
    "open_catalog",
    "retract",
    "retract_file",
    "rollback",
    "vacuum",
]

_MODULES = {
    "catalog.delta_stream.catalog": ("DeltaStreamCatalog",),
    "catalog.delta_stream.vacuum.vacuum": ("vacuum",),
    "catalog.delta_stream.taking_out": ("retract_file",),
    "catalog.delta_stream.versions": ("retract", "rollback"),
    "catalog.iceberg.catalog": ("IcebergCatalog",),
    "catalog.iceberg.convert.convert": ("ConvertResult",),
    "catalog.iceberg.upsert.upsert": ("UpsertResult",),
    "catalog.iceberg.maintain.maintain": ("MaintainResult",),
    "catalog.iceberg.rewrite.result": ("RewriteResult",),
    "catalog.opening": ("open_catalog",),
    "catalog.publication.publication": ("PublicationResult",),
    "compact": ("compact",),
    "results": ("CompactionResult", "SessionResult"),
    "base.model": (
        "PARTITION_STREAM_POS_VIRTUAL_COL_NAME",
        "ContentType",
        "DataFile",
        "Delta",
        "OperationType",
        "SortKey",
    ),
    "maintenance.check": ("check",),
    "storage.s3_access": ("S3Settings",),
    "base.settings": ("Settings",),
    "base.errors": (
        "ConflictError",
        "CorruptionError",
        "DeltaCompactError",
        "InputError",
        "Interrupted",
        "NotFoundError",
        "OutcomeUnknownError",
        "PositionError",
        "SchemaError",
        "StoreError",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Keeps `deltacompact.compact` the function: importing the module of that name would replace it."""

    @property
    def compact(self) -> Any:
        return __getattr__("compact")

    @compact.setter
    def compact(self, module: ModuleType) -> None:
        pass


sys.modules[__name__].__class__ = _Package
