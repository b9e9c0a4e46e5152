"""Errors of readers: every one names its file, and says if the bytes are broken or the way to them.

snappy: corrupt input                  InputError: landing/a.parquet cannot be read: …      the file is broken
AWS Error NETWORK_CONNECTION           StoreError: landing/a.parquet cannot be read: …      try again
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import pyarrow as pa

from deltacompact.base.errors import InputError, NotFoundError, StoreError
from deltacompact.base.wording import text_of

SHOWN_CHARACTERS = 300
"""Of what a library says of a broken file."""
_DAMAGE = re.compile(
    r"(?i)deserializ|decompress|inflate|corrupt|unexpected end|truncat|malformed|invalid|checksum|magic|not a "
    r"|encrypted|decrypt|too small|is a directory"
)
"""Arrow raises OSError for a broken connection and for broken bytes: these words tell the latter."""


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Every error of a reader names its file in one line."""
    try:
        yield
    except NotFoundError:
        raise
    except InputError as error:
        if path in str(error):
            raise
        raise InputError(f"{path}: {error}") from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, pa.ArrowKeyError, OSError) as error:
        kind = StoreError if is_stores_fault(error) else InputError
        raise kind(f"{path} cannot be read: {text_of(error)[:SHOWN_CHARACTERS]}") from error


def is_stores_fault(error: BaseException) -> bool:
    """Whether reading failed on the way to the bytes, so that it may be tried again, and not over the bytes."""
    if isinstance(error, (ConnectionError, TimeoutError)) or "AWS Error" in str(error):
        return True
    return isinstance(error, OSError) and not _DAMAGE.search(str(error))
