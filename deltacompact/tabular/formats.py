"""Formats of tabular files, by file name extension.

a.parquet   Parquet        b.CSV.gz   CSV, compressed as a whole        c.zip   refused
"""

from __future__ import annotations

from pathlib import PurePosixPath

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.base.model import ContentType

EXTENSIONS = {
    ".parquet": ContentType.PARQUET,
    ".pq": ContentType.PARQUET,
    ".feather": ContentType.FEATHER,
    ".arrow": ContentType.FEATHER,
    ".ipc": ContentType.FEATHER,
    ".orc": ContentType.ORC,
    ".csv": ContentType.CSV,
    ".tsv": ContentType.CSV,
    ".json": ContentType.JSON,
    ".jsonl": ContentType.JSON,
    ".ndjson": ContentType.JSON,
}
UNTYPED = frozenset({ContentType.CSV, ContentType.JSON})
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""Compressions of whole text files. The other formats compress inside the file."""
_SUFFIX = {
    ContentType.PARQUET: ".parquet",
    ContentType.FEATHER: ".feather",
    ContentType.ORC: ".orc",
    ContentType.CSV: ".csv",
}

_PARQUET_TYPES = frozenset(
    [pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    + [pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.date32()]
    + [pa.timestamp(unit, zone) for unit in ("ms", "us", "ns") for zone in (None, "UTC")]
)


def surely_holds(content_type: ContentType, schema: pa.Schema) -> bool:
    """Whether the format holds columns of these types, without a trial: most types of most tables, in Parquet."""
    return content_type is ContentType.PARQUET and _PARQUET_TYPES.issuperset(schema.types)


def content_type_of(path: str) -> ContentType:
    """The format by the file's extension. Raises InputError for an unknown extension."""
    extension, compression = extensions(path)
    content_type = EXTENSIONS.get(extension)
    if is_avro(path):
        raise InputError(
            f"{path}: Avro files are taken as change events: say what wrote them (--format, format=), or which column "
            "has the operation (--operation-column, operation_column=)"
        )
    if content_type is None or (compression and content_type not in UNTYPED):
        known = f"{', '.join(EXTENSIONS)}; text also with {', '.join(COMPRESSIONS)}"
        raise InputError(f"{path}: unknown extension {extension + compression!r} (known: {known})")
    return content_type


def written_type_of(path: str) -> ContentType:
    """The format to write a file in, by its extension. Raises InputError for a format that we do not write."""
    extension, compression = extensions(path)
    content_type = EXTENSIONS.get(extension)
    if content_type not in _SUFFIX or compression:
        written = [name for name, known in EXTENSIONS.items() if known in _SUFFIX]
        raise InputError(f"{path}: {extension + compression!r} files are not written, only {', '.join(written)}")
    return content_type


def is_avro(path: str) -> bool:
    """Whether the path names an Avro file: change events may come in Avro, tables hold none."""
    return extensions(path) == (".avro", "")


def delimiter_of(path: str) -> str:
    """The field separator of a CSV file, by its name: a tab for .tsv, compressed or not."""
    return "\t" if extensions(path)[0] == ".tsv" else ","


def stored_suffix(path: str) -> str:
    """The extensions that a copy needs, so that readers treat it like the original."""
    return "".join(extensions(path))


def extensions(path: str) -> tuple[str, str]:
    """The format's extension and the compression's extension: (".csv", ".gz") for "b.CSV.gz"."""
    pure = PurePosixPath(path)
    last = pure.suffix.lower()
    return (pure.with_suffix("").suffix.lower(), last) if last in COMPRESSIONS else (last, "")


def suffix_of(content_type: ContentType) -> str:
    """The extension of written files. Raises InputError for a format that cannot be written."""
    if content_type not in _SUFFIX:
        raise not_written(content_type)
    return _SUFFIX[content_type]


def not_written(content_type: ContentType) -> InputError:
    """The error for a format that is only read."""
    extension = next(extension for extension, known in EXTENSIONS.items() if known is content_type)
    return InputError(f"{extension} files are read, not written; what can be written: {', '.join(_SUFFIX.values())}")
