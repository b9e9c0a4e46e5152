"""The row-by-row work, in Rust: digests, buckets, sort keys, entries, the fold and survivor ranks.

All functions release the GIL, none starts a thread. Columns are anything with ``__arrow_c_array__`` (a
``pyarrow.Array``, slices included). Arrays of fixed-width data are C-contiguous numpy arrays, read-only ones too.
Bad input raises a ``ValueError`` that names the argument, column or row at fault.

An **entry** has W = 32 + S bytes: ``digest[20] | sort key[S] | file ordinal u32 LE | row u64 LE``.

- In *new* entries bit 63 of row says "this row is a delete", bit 62 "and it is keyless"; rows are below 2**62.
- A tombstone has ordinal 0xFFFFFFFF, and as row the stream position of its delete (the bits of an int64).
- Index entries ("base") have no flags.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypedDict, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import Buffer

VERSION: str
"""Of the package: Cargo.toml is the one place where it stands."""

class ArrowColumn(Protocol):
    """One contiguous Arrow array. Dictionaries must be decoded, extension arrays cast to their storage."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

def key_digests(
    columns: Sequence[ArrowColumn], tags: Sequence[int], rows: int, *, backend: str | None = None
) -> npt.NDArray[np.uint8]:
    """SHA-1 of the canonical key bytes of each row: uint8 (rows, 20).

    ``tags`` has one class tag per column, in the order in which the key bytes have them:

    == ================ ============================================================ =============================
    1  integer          int8 to int64, uint8 to uint64                               sign byte, 8 bytes
    2  float            float16, float32, float64                                    float64; one NaN, no -0.0
    3  decimal          decimal32, 64, 128, 256 (the caller sees to one scale)       unscaled, 32 bytes
    4  naive timestamp  timestamp without zone                                       seconds 8 bytes, ns 4 bytes
    5  zoned timestamp  timestamp with zone                                          the same
    6  date             date32, whole-day date64                                     days, 8 bytes
    7  time             time32, time64                                               ns of the day, 8 bytes
    8  duration         duration                                                     as timestamps
    9  string           string, large_string, string_view                            length 4 bytes, UTF-8
    10 binary           binary, large_binary, binary_view, fixed_size_binary         length 4 bytes, bytes
    11 bool             bool                                                         0 or 1
    == ================ ============================================================ =============================

    Each column gives a presence byte: 0 alone for null; 1, its tag and the value otherwise; all numbers are big-endian.
    So the form of a null does not depend on the class, which is not known while a column has only nulls: a column of
    Arrow's null type is all null under any tag. Without columns every key is the empty string.

    ``backend`` forces the SHA-1 code ("avx512", "sha-ni", "avx2", "portable"); None takes ``sha1_backend()``.

    ValueError: a type that does not belong to its tag, a column without ``rows`` rows, a date64 of part of a day,
    a time beyond int64 nanoseconds, a value longer than 2**32 - 1 bytes, a backend this processor does not have.
    """

def key_bytes(columns: Sequence[ArrowColumn], tags: Sequence[int], rows: int) -> list[bytes]:
    """The canonical key bytes that ``key_digests`` hashes, one ``bytes`` a row (tests, golden vectors, messages)."""

def row_sum(rows: ArrowColumn, schema: pa.DataType) -> int:
    """The sum modulo 2**128 of the hashes of rows, a struct array: of each the first 16 bytes of its SHA-1, big-endian.
    ``schema`` is a struct type with the same fields, at any depth; their metadata count, not those of the array.

    A row's bytes are its values that are not null, each behind its label, in the order of the labels' bytes. The label
    is the field id (``PARQUET:field_id`` in the field's metadata), 4 bytes; where a field has none, those of all are
    the names, each behind its length. A value is what ``key_bytes`` has, with three more class tags: 12 list (how many,
    then the items as those of keys), 13 map (how many, then key and item of each), 14 struct (as a row, then ffffffff).

    ValueError: no struct array, other fields, a type that has no class, an id below 0, and as for ``key_digests``.
    """

def row_bytes(rows: ArrowColumn, schema: pa.DataType) -> list[bytes]:
    """The bytes that ``row_sum`` hashes, one ``bytes`` a row (tests, golden vectors)."""

def buckets(digests: npt.NDArray[np.uint8], hash_bucket_count: int) -> npt.NDArray[np.uint32]:
    """``int.from_bytes(digest, "big") % hash_bucket_count`` of each digest: (n, 20) -> uint32 (n,).

    ``hash_bucket_count`` is 1 to 2**32 - 1.
    """

def sort_keys(
    columns: Sequence[ArrowColumn], descending: Sequence[bool], rows: int, widths: Sequence[int | None] | None = None
) -> npt.NDArray[np.uint8]:
    """Sort keys whose plain byte comparison finds the winner, the greatest: uint8 (rows, S).

    Each column takes a presence byte (0 null and all value bytes zero, 1 value) and its value, inverted where it is
    ``descending``. Types and value bytes: bool, int8, uint8 1; 16-bit integers, float16 2; 32-bit integers, float32,
    decimal32, date32, time32 4; 64-bit integers, float64, decimal64, date64, time64, timestamp, duration 8;
    decimal128 16; decimal256 32; fixed_size_binary(w) w. NaN is above +inf, -0.0 equals 0.0. Strings and binaries of
    any layout take their entry w of ``widths`` (0 to 32) and 1: the value padded with zeros, then its length.

    ValueError: any other type (Arrow's null type too: cast it first), a string or binary without a width or with a
    longer value, a column without ``rows`` rows.
    """

def pack_entries(
    digests: npt.NDArray[np.uint8], sort_keys: npt.NDArray[np.uint8], ordinal: int, rows: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint8]:
    """Entries of one file: digests (n, 20), sort keys (n, S), one file ordinal, rows (n,) -> uint8 (n, 32 + S).

    ``rows`` is taken as it is, flags included.
    """

def group_entries(
    parts: Sequence[npt.NDArray[np.uint8]], hash_bucket_count: int, *, for_fold: bool = False
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Puts entries of one hash bucket next to each other, in the order of the parts.

    Parts are uint8 (n_i, W), all of one W. Returns the entries (N, W) and offsets int64 (hash_bucket_count + 1,):
    bucket b is ``entries[offsets[b]:offsets[b + 1]]``. Without parts the result has W = 32.

    ``for_fold``: within a bucket, the first bits of the digest go before the order of the parts. Entries of one digest
    keep their order.
    """

class FoldCounts(TypedDict):
    """Counts of rows. Rows live in base + upserts == live + superseded + deleted."""

    upserts: int
    """Upsert rows among the new entries."""
    deletes: int
    """Delete rows among the new entries."""
    superseded: int
    """Upsert rows (in base or new) that lost to another upsert of their key."""
    deleted: int
    """Upsert rows (in base or new) that a delete killed."""
    live: int
    """Live entries in the output."""
    tombstones: int
    """Tombstones in the output."""

@final
class Fold:
    """Folds new events into a base index that is streamed in digest order.

    ::

        fold = Fold(new_entries, sort_key_bytes, positions, tombstone_retention)
        for chunk in base:
            write(fold.push(chunk))
        write(fold.finish())

    All output together is strictly ascending by digest. ``new_entries`` are kept by reference, not copied (8 bytes an
    entry come on top): do not write to them before ``finish``. For each key, events in order of (ordinal, row), an
    event's position being ``positions[ordinal]``:

    - A tombstone at p with event position - p > ``tombstone_retention`` is forgotten first.
    - Upsert: wins over nothing, over a live row or a tombstone with sort key <= its own. The loser of two upserts is
      *superseded*; an upsert that a tombstone stops is *deleted*.
    - Keyless delete (or S == 0): nothing is left; a live row is *deleted*.
    - Delete: wins over nothing, over a live row (*deleted*) or a tombstone with sort key <= its own, and leaves a
      tombstone with its sort key and position; otherwise it does nothing.

    Tombstones of keys without events stay, whatever their age.
    """

    def __new__(
        cls,
        new_entries: Sequence[npt.NDArray[np.uint8]],
        sort_key_bytes: int,
        positions: npt.NDArray[np.int64],
        tombstone_retention: int | None = None,
    ) -> Fold:
        """``new_entries``: uint8 (n_i, 32 + sort_key_bytes), in any order; ``positions``: int64, by file ordinal.

        ValueError: wrong width, an ordinal without position, a keyless row that is not a delete, 2**32 entries or more.
        """

    def push(self, base: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """The finished entries up to and including the last digest of ``base`` (m, W): uint8 (k, W).

        ValueError: base is not strictly ascending by digest, also across pushes; a live base row is not below 2**62;
        a new (ordinal, row) is there twice under one key. A fold that has failed only raises RuntimeError from then on.
        """

    def finish(self) -> npt.NDArray[np.uint8]:
        """The rest: uint8 (k, W). RuntimeError where the counts are not conserved, or when called twice."""

    @property
    def counts(self) -> FoldCounts:
        """Valid after ``finish``; RuntimeError before."""

    def dead(self) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]:
        """Ordinals and rows that were live in base and died so far, in digest order."""

@final
class SurvivorRanks:
    """Surviving rows of a group of files, and the rank of each in (file, row) order.

    ``ordinals`` uint32, strictly ascending; ``file_rows`` int64, rows of each file. A bit a row, and an eighth more.
    """

    def __new__(cls, ordinals: npt.NDArray[np.uint32], file_rows: npt.NDArray[np.int64]) -> SurvivorRanks: ...
    def mark(self, ordinals: npt.NDArray[np.uint32], rows: npt.NDArray[np.uint64]) -> None:
        """Marks rows as surviving. ValueError: marked before, a file that is not in the group, a row it lacks."""

    def fill(self, ordinal: int, mask: npt.NDArray[np.uint8] | None = None) -> None:
        """Marks the rows of a file that are set in a mask, in the layout of ``mask``; without a mask, all rows."""

    def unmark(self, ordinals: npt.NDArray[np.uint32], rows: npt.NDArray[np.uint64]) -> None:
        """Takes marks back. ValueError: a row that is not marked, a file that is not in the group."""

    def ranks(self, ordinals: npt.NDArray[np.uint32], rows: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """The rank of each of these rows among all marked ones: uint64 (n,). ValueError where one is not marked."""

    def relocate(self, entries: npt.NDArray[np.uint8], first_output: int, rows_per_output: int) -> None:
        """Change the pointers of entries (n, W) into these files, in place: the marked row of rank r becomes row
        r % ``rows_per_output`` of file ``first_output`` + r // ``rows_per_output``. Other entries stay as they are.

        ValueError: an entry points to a row that is not marked; a read-only array.
        """

    def mask(self, ordinal: int) -> npt.NDArray[np.uint8]:
        """A file's marks as Arrow lays out booleans: row r is bit r % 8 of byte r // 8; uint8 (ceil(rows / 8),)."""

    def live(self, ordinal: int) -> int:
        """Marked rows of a file."""

    @property
    def total(self) -> int:
        """Marked rows of the group."""

@final
class PointerSplit:
    """Divides pointers by the group of files that they point into. Within a group they keep their order."""

    def __new__(cls, group_of: npt.NDArray[np.uint32], groups: int) -> PointerSplit:
        """``group_of``, by ordinal: below ``groups``, or 0xFFFFFFFF for a file whose pointers are left out."""

    def push_entries(self, entries: npt.NDArray[np.uint8]) -> None:
        """Takes the pointers of entries (n, W); tombstones and "gone" have none. ValueError: a file in no group."""

    def push_pointers(self, ordinals: npt.NDArray[np.uint32], rows: npt.NDArray[np.uint64]) -> None:
        """Takes pointers (n,), (n,); those into files in no group are left out."""

    def finish(self) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """Ordinals and rows, group after group, and offsets (groups + 1,). Once only."""

@final
class Publisher:
    """Puts pointers for readers into entries, by the ranks that came back for a ``PointerSplit`` of the entries."""

    def __new__(
        cls,
        group_of: npt.NDArray[np.uint32],
        number_of: npt.NDArray[np.uint32],
        first_ranks: npt.NDArray[np.uint64],
        marked_from: int,
        first_output_number: int,
        rows_per_output: int,
        ranks: npt.NDArray[np.uint32],
        offsets: npt.NDArray[np.int64],
        expired: int | None = None,
    ) -> Publisher:
        """A rank r of group g, ``first_ranks[g]`` + r = R, is row R % ``rows_per_output`` of the output with the number
        ``first_output_number`` + R // ``rows_per_output``. Files that are kept, and those of the groups from
        ``marked_from`` on, stay: their rows too, under ``number_of`` by ordinal. ``ranks`` has those of all groups,
        divided by ``offsets`` (groups + 1,). Tombstones up to the position ``expired`` are dropped.
        """

    def publish(self, chunk: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """The next entries (n, W), with new pointers: (m, W). ValueError: a group has more entries than ranks."""

    @property
    def left(self) -> int:
        """Ranks for which no entry has come yet."""

@final
class Touched:
    """Finds the newest entry of each key of new entries, in an index that is made of runs.

    ::

        touched = Touched(new_entries, entry_bytes)
        for run in newest_first:
            for chunk in run:
                touched.find(chunk)
        base = touched.found()
    """

    def __new__(cls, new_entries: Sequence[npt.NDArray[np.uint8]], entry_bytes: int) -> Touched:
        """Only the digests of ``new_entries`` count; ``entry_bytes`` is the width of the index's entries."""

    def find(self, chunk: npt.NDArray[np.uint8]) -> None:
        """Takes the entries of keys that were not found before. ``chunk`` (m, W) is strictly ascending by digest."""

    def found(self) -> npt.NDArray[np.uint8]:
        """The entries found, (k, W) ascending by digest. Keys whose newest entry says "gone" are left out."""

def changes(
    found: npt.NDArray[np.uint8], folded: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32], npt.NDArray[np.uint64]]:
    """The changes of a fold: a run for the index, and the ordinals and rows that died.

    ``found`` are the index's entries of some keys, ``folded`` the entries of these and new keys after the fold. The run
    leaves out unchanged entries. For a key that is gone it has an entry with file 0xFFFFFFFE ("gone").
    """

def merge_entries(older: npt.NDArray[np.uint8], newer: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Merges two runs, strictly ascending by digest. The newer entry of a key wins; "gone" stays."""

def points_into(entries: npt.NDArray[np.uint8], files: npt.NDArray[np.uint32]) -> bool:
    """Whether any of the entries (n, W) points into one of these files, whose numbers ascend strictly."""

def present_entries(entries: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The entries of keys that are not gone."""

def count_to(entries: npt.NDArray[np.uint8], last: npt.NDArray[np.uint8]) -> int:
    """How many of these strictly ascending entries have a digest up to that of the entry ``last`` (1, W)."""

@final
class ParquetFooter:
    """The footer of a Parquet file of ``size`` bytes; ``read(offset, length)`` returns bytes of it.

    Without ``page_indexes``, page indexes are not read, and so not copied. ValueError: the footer is damaged or
    contradicts itself. Exceptions of ``read`` are raised unchanged.
    """

    def __new__(cls, size: int, read: Callable[[int, int], Any], page_indexes: bool = True) -> ParquetFooter: ...
    @property
    def encrypted(self) -> bool:
        """Whether some pages are encrypted, though the footer is not."""

    @property
    def created_by(self) -> str:
        """Who wrote the file; empty: it does not say."""

    def kinds(self) -> list[list[tuple[str, list[str], list[str], str]]]:
        """For each row group the kinds of its chunks, each once: physical type, encodings, types of pages, codec.

        A footer need not tell the types of pages: then there are none.
        """

    def refusals(self, template: bytes) -> list[str | None]:
        """For each row group why it cannot be copied into a file that is begun with this template, or None."""

    def decoded(self, columns: list[str]) -> list[tuple[int, int]]:
        """For each row group its rows, and about the bytes that the columns of these names take when decoded."""

    def widest_row(self, size: int, read: Callable[[int, int], Any]) -> int:
        """At least the bytes of the widest row of the file when decoded. Reads the headers of large pages with text."""

    def chunks(self, columns: list[str]) -> list[list[tuple[int, int]]]:
        """For each row group the chunks of the columns of these names, by their places: first byte and length."""

    def runs(self, row_groups: list[int]) -> list[tuple[int, int]]:
        """The bytes of row groups that can be copied: first byte and length of each run of adjacent chunks."""

@final
class ParquetAssembler:
    """A Parquet file made of row groups that are encoded already; nothing is decoded.

    Statistics and histograms go with their chunks, page indexes where all chunks have them; bloom filters do not.
    """

    def __new__(cls, template: bytes, write: Callable[[bytes], object], created_by: str) -> ParquetAssembler:
        """``template``: a Parquet file without rows, which gives columns and key-value metadata."""

    def append(
        self,
        footer: ParquetFooter,
        size: int,
        read: Callable[[int, int], Any],
        row_groups: list[int],
        copy: Callable[[int, int], bool] | None = None,
    ) -> None:
        """Copies row groups of the file of ``size`` bytes that has this footer.

        ``copy(start, length)`` asks the sink to append 5 MiB or more of the file's bytes by itself; all earlier bytes
        have been written by then. False: it cannot, so they are read and written.

        ValueError: no such row group, one that ``footer.refusals`` refuses, or a page whose checksum is wrong; pages
        are verified where the file has checksums, unless ``copy`` took them. Exceptions of ``read`` and ``write`` are
        raised unchanged. An assembler that has failed only raises RuntimeError from then on.
        """

    def close(self) -> None:
        """Writes the footer."""

def is_ascending(entries: npt.NDArray[np.uint8]) -> bool:
    """Whether entries (n, W) are strictly ascending by digest."""

def crc32(buffer: Buffer | npt.NDArray[Any]) -> int:
    """CRC-32 (as zlib's) of any C-contiguous buffer."""

def readable_footer(footer: bytes) -> bytes:
    """The same footer, without statistics on which pyarrow would end the process: values cut by their writer.

    Raises:
        ValueError: pyarrow would end the process if it is asked for a column chunk of this footer.
    """

def sha1_backend() -> str:
    """The SHA-1 code chosen for this processor: "avx2", "sha-ni" or "portable"."""
