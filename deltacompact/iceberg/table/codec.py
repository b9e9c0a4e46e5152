"""The codec of the files that we write: the one in the settings, else the one in the table's properties.

write.parquet.compression-codec = zstd · snappy · uncompressed · …
"""

from __future__ import annotations

from collections.abc import Mapping

from deltacompact.base.settings import check_codec

_CODEC = "write.parquet.compression-codec"


def codec_of(properties: Mapping[str, str], chosen: str | None = None) -> str:
    """The codec by pyarrow's name. Raises InputError if the table asks for a codec that we cannot write."""
    if chosen is not None:
        return chosen
    name = properties.get(_CODEC, "zstd").lower()
    codec = "none" if name == "uncompressed" else name
    check_codec(_CODEC, codec)
    return codec
