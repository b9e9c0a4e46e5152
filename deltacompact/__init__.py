"""deltacompact: folds the deltas of merge-on-read tables into few large files, one live row per key, with Ray."""

from deltacompact.catalog.delta_stream import DeltaStreamCatalog, open_catalog
from deltacompact.compact import CompactionResult, SessionResult, compact
from deltacompact.errors import (
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
from deltacompact.model import (
    PARTITION_STREAM_POS_VIRTUAL_COL_NAME,
    ContentType,
    DataFile,
    Delta,
    OperationType,
    SortKey,
)
from deltacompact.s3_store import S3Settings
from deltacompact.settings import Settings

__version__ = "0.1.0"

__all__ = [
    "PARTITION_STREAM_POS_VIRTUAL_COL_NAME",
    "CompactionResult",
    "ConflictError",
    "ContentType",
    "CorruptionError",
    "DataFile",
    "Delta",
    "DeltaCompactError",
    "DeltaStreamCatalog",
    "InputError",
    "Interrupted",
    "NotFoundError",
    "OperationType",
    "OutcomeUnknownError",
    "PositionError",
    "S3Settings",
    "SchemaError",
    "SessionResult",
    "Settings",
    "SortKey",
    "StoreError",
    "compact",
    "open_catalog",
]
