"""Errors of readers: every error names its file, and says whether the bytes are broken or the connection failed.

snappy: corrupt input                  InputError: landing/a.parquet cannot be read: …      the file is broken
AWS Error NETWORK_CONNECTION           StoreError: landing/a.parquet cannot be read: …      try again
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

import pyarrow as pa

from deltacompact.base.errors import DeltaCompactError, InputError, NotFoundError, StoreError
from deltacompact.base.wording import text_of

SHOWN_CHARACTERS = 300
"""How many characters of a library's message about a broken file we show."""
_DAMAGE = re.compile(
    r"(?i)deserializ|decompress|inflate|corrupt|unexpected end|truncat|malformed|invalid|checksum|magic|not a "
    r"|encrypted|decrypt|too small|is a directory|unexpected null|expected ipc|must be before|not supported|no children"
    r"|logical type|flatbuffer|not match|out of bounds|out of range|too short|codec failed|not enough|than one frame"
    r"|than one dictionary|unknown encoding|dictionary encoding|repetition level|too deeply"
)
"""Arrow raises OSError for broken connections and for broken bytes. These words mean broken bytes."""
_ASKED_FOR = re.compile(r"alloc of size (\d+) failed")
_NO_MEMORY_BYTES = 1 << 40
"""No file holds a value or column of so many bytes: who asks for as much memory reads a damaged length."""


CANNOT_BE_READ = "cannot be read"
"""Words of every message about a file with broken bytes. Code that gives advice looks for them."""


@contextlib.contextmanager
def naming(path: str, *kinds: type[DeltaCompactError]) -> Iterator[None]:
    """Turn a reader's errors, and errors of these kinds, into one line that names the file."""
    try:
        yield
    except NotFoundError:
        raise
    except kinds as error:
        raise type(error)(f"{path} {CANNOT_BE_READ}: {error}") from error
    except InputError as error:
        if path.removeprefix("file://") in str(error):  # stores of local files name them by their paths
            raise
        raise type(error)(f"{path}: {error}") from error
    except (pa.ArrowException, UnicodeError, RecursionError, OSError) as error:
        if isinstance(error, pa.ArrowCancelled) or lacks_memory(error):
            raise
        kind = StoreError if is_stores_fault(error) else InputError
        raise kind(f"{path} {CANNOT_BE_READ}: {text_of(error)[:SHOWN_CHARACTERS]}") from error


def is_stores_fault(error: BaseException) -> bool:
    """Whether the store or the connection failed, so that trying again may help. False: the bytes are broken."""
    if isinstance(error, (ConnectionError, TimeoutError)) or "AWS Error" in str(error):
        return True
    if not isinstance(error, OSError):
        return False
    text = str(error) if error.errno is None else os.strerror(error.errno)  # the text may have the file's path in it
    return not _DAMAGE.search(text)


def lacks_memory(error: BaseException) -> bool:
    """Whether this machine had too little memory to read. False: another error, or a damaged length asked for it."""
    if not isinstance(error, pa.ArrowMemoryError):
        return False
    asked = _ASKED_FOR.search(str(error))
    return asked is None or int(asked[1]) < _NO_MEMORY_BYTES
