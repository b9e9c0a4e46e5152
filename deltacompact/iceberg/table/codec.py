"""The codec of the files that we write: the one in the settings, else the one in the table's properties.

write.parquet.compression-codec = zstd · snappy · uncompressed · …
write.delete.parquet.compression-codec         of delete files, where it is another one
"""

from __future__ import annotations

from collections.abc import Mapping

from deltacompact.base.settings import check_codec

_OF_DATA, _OF_DELETES = "write.parquet.compression-codec", "write.delete.parquet.compression-codec"


def codec_of(properties: Mapping[str, str], chosen: str | None = None) -> str:
    """The codec by pyarrow's name. Raises InputError if the table asks for a codec that we cannot write."""
    return chosen or _asked(properties, _OF_DATA)


def delete_codec_of(properties: Mapping[str, str], chosen: str | None = None) -> str:
    """The same, of delete files."""
    return chosen or _asked(properties, _OF_DELETES if _OF_DELETES in properties else _OF_DATA)


def _asked(properties: Mapping[str, str], name: str) -> str:
    asked = properties.get(name, "zstd").lower()
    codec = "none" if asked == "uncompressed" else asked
    check_codec(name, codec)
    return codec
