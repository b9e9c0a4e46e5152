"""The decompressed text of a file: where it begins and ends, and its rows in blocks that hold the longest one.

orders.tsv.gz       fields are divided by a tab, as its name says; by a comma if its header has only commas
2,"b",<end>         ends with a separator, so its last field is empty and no line break follows
a row of 20 MB      does not fit a block of 16 MB, so the text is parsed again in blocks of 128 MB
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.tabular import parquet_read
from deltacompact.tabular.formats import COMPRESSIONS, delimiter_of, extensions

TEXT_BLOCK_BYTES = 16 << 20
BLOCK_BYTES_MAX = (1 << 31) - 1
"""The parsers take no larger block."""
_HEAD_BYTES = 4 << 10
_QUOTED = re.compile(r'"[^"]*"')
_LINE_BREAK = re.compile(rb"[\r\n]")


@dataclass(frozen=True, slots=True)
class FileText:
    """The decompressed text of a file, which can be opened more than once."""

    source: pa.NativeFile
    path: str

    @classmethod
    def of(cls, source: pa.NativeFile, path: str) -> FileText:
        """The text of an opened file. One that is far away is fetched whole, because it is read more than once."""
        return cls(source if parquet_read.is_near(source) else pa.BufferReader(source.read_buffer()), path)

    def opened(self) -> pa.NativeFile:
        """The text from its beginning."""
        codec, size = COMPRESSIONS.get(extensions(self.path)[1]), self.source.size()
        # Each reader needs its own stream of the source, which it closes at its end.
        stream = self.source.get_stream(0, size)
        return stream if codec is None or size == 0 else pa.CompressedInputStream(stream, codec)

    def delimiter(self) -> str:
        """The field separator, by the file's name; but a comma for a .tsv whose header has commas and no tab."""
        named = delimiter_of(self.path)
        if named == ",":
            return named
        header = _QUOTED.sub("", self.header().decode(errors="replace"))
        return "," if "," in header and named not in header else named

    def header(self) -> bytes:
        """The first line that is not blank."""
        pieces = list[bytes]()
        with self.opened() as text:
            while more := bytes(text.read(_HEAD_BYTES)):
                piece, *others = _LINE_BREAK.split(more if pieces else more.lstrip(), 1)
                pieces += [piece] if piece else []
                if others:
                    break
        return b"".join(pieces).strip()

    def begins_with(self) -> bytes:
        """The first byte that is not blank; empty: the text is blank."""
        with self.opened() as text:
            head = bytes(text.read(_HEAD_BYTES)).removeprefix(codecs.BOM_UTF8)
            while head and not head.lstrip():
                head = bytes(text.read(_HEAD_BYTES))
            return head.lstrip()[:1]

    def ends_with(self, delimiter: str) -> bool:
        """Whether the last byte is the field separator, so that the last line ends with a null and no line break."""
        last = b""
        with self.opened() as text:
            while more := bytes(text.read(TEXT_BLOCK_BYTES)):
                last = more[-1:]
        return last == delimiter.encode()

    def blocks(self) -> Iterator[bytes]:
        """The text in blocks of whole lines: TEXT_BLOCK_BYTES, and the rest of the line that begins before their end.

        Raises InputError for a line that no parser takes.
        """
        with io.BufferedReader(self.opened()) as text:
            while block := text.read(TEXT_BLOCK_BYTES) + text.readline():
                if len(block) > BLOCK_BYTES_MAX:
                    raise InputError(f"a line of it has more than {BLOCK_BYTES_MAX - TEXT_BLOCK_BYTES:,} bytes")
                yield block

    def ended(self) -> pa.NativeFile:
        """The text with a line break at its end."""
        with self.opened() as text:
            return pa.BufferReader(bytes(text.read()) + b"\n")


def whole_text(source: pa.NativeFile, path: str) -> bytes:
    """The decompressed text of a file."""
    with FileText.of(source, path).opened() as text:
        return bytes(text.read())


def in_blocks(parse: Callable[[int], pa.Table]) -> pa.Table:
    """What `parse` finds in blocks of so many bytes: of more, where a row is longer, which the parser refuses."""
    size = TEXT_BLOCK_BYTES
    while True:
        try:
            return parse(size)
        except pa.ArrowInvalid as error:
            if "straddling object" not in str(error) or size == BLOCK_BYTES_MAX:
                raise
        size = min(8 * size, BLOCK_BYTES_MAX)
