"""What a file is by its first bytes, for messages about a file that its name takes for something else.

report.csv       PAR1…           it is a Parquet file: name it .parquet
report.csv       1f 8b …         it is compressed by gzip: name it .csv.gz
report.csv.gz    id,day…         it is not compressed by gzip: name it .csv
report.csv       ff fe …         it is UTF-16: save it as UTF-8
"""

from __future__ import annotations

from deltacompact.base.model import ContentType
from deltacompact.tabular.formats import COMPRESSIONS, EXTENSIONS, UNTYPED, extensions

BEGINNING_BYTES = 6
_FORMATS = {b"PAR1": "a Parquet", b"ARROW1": "an Arrow", b"ORC": "an ORC", b"Obj\x01": "an Avro"}
_COMPRESSED = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\x28\xb5\x2f\xfd": ".zst"}
_ARROW = (b"ARROW1", b"FEA1", b"\xff\xff\xff\xff")
"""An IPC file, Feather of version 1, and a stream, of which Arrow says that it expected millions of bytes."""
_OTHERS = {
    b"PK\x03\x04": "a zip archive or a spreadsheet: unpack it, or save it as CSV",
    b"\xd0\xcf\x11\xe0": "a spreadsheet: save it as CSV",
    b"\xff\xfe": "UTF-16: save it as UTF-8",
    b"\xfe\xff": "UTF-16: save it as UTF-8",
}


def contradiction(path: str, beginning: bytes) -> str | None:
    """How the first bytes of a file that cannot be read contradict its name, and what to do. None: they do not."""
    extension, compression = extensions(path)
    for magic, suffix in _COMPRESSED.items():
        if beginning.startswith(magic) and suffix != compression:
            remedy = f"name it {extension}{suffix}" if EXTENSIONS.get(extension) in UNTYPED else "decompress it"
            return f"it is compressed by {COMPRESSIONS[suffix]}: {remedy}"
        if beginning and not beginning.startswith(magic) and suffix == compression:
            return f"it is not compressed by {COMPRESSIONS[suffix]}: name it {extension}"
    for magic, what in _FORMATS.items():
        if beginning.startswith(magic) and (named := f".{what.split()[1].lower()}") not in _spellings(extension):
            return f"it is {what} file: name it {named}"
    if EXTENSIONS.get(extension) is ContentType.FEATHER and beginning and not beginning.startswith(_ARROW):
        return "it is no Arrow file"
    return next((f"it is {what}" for magic, what in _OTHERS.items() if beginning.startswith(magic)), None)


def _spellings(extension: str) -> tuple[str, ...]:
    """The extension as we write it, beside itself."""
    return (extension, {".pq": ".parquet", ".feather": ".arrow", ".ipc": ".arrow"}.get(extension, extension))
