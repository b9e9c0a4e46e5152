"""Finds columns by which readers cannot skip files, although rows are laid out by them: bounds are cut before values
differ, or there are none. Pure.

link     "https://…/a very long beginning/000001" … "…/000399"       in 128 characters both bounds begin alike
body     texts of 5,000 bytes                                          Parquet's statistics hold 4 kB: no bounds
name     "ada" … "bob"                                             bounds part files as rows do
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deltacompact.base.wording import counted
from deltacompact.iceberg.boxes import ordered_column
from deltacompact.iceberg.table.content_files import ContentFile
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg.table.pyiceberg_door.metrics import BOUND_LENGTH


def tied_lines(metadata: TableMetadata, columns: Iterable[str], files: Sequence[ContentFile]) -> list[str]:
    """A line for each of the columns in which several files have bounds that are cut, and begin alike, or files lack
    bounds."""
    found = []
    for name in columns:
        number, column = ordered_column(metadata, name)
        if column.type in ("string", "binary"):
            if unbounded := sum(_lacks_bounds(file, number) for file in files):
                without = f"column {name!r}: {counted(unbounded, 'file')} without bounds"
                found.append(f"{without}: Parquet keeps none of more than 4 kB, so readers cannot skip files by it")
            tied = [begin for file in files if (begin := _beginning(file, number, column.type)) is not None]
            if len(tied) > len(set(tied)):
                found.append(
                    f"column {name!r}: values of several files begin alike in the {BOUND_LENGTH} characters that "
                    "bounds have, so readers cannot skip these files by it"
                )
    return found


def _lacks_bounds(file: ContentFile, number: int) -> bool:
    """Whether a file has values of a column whose bounds are unknown."""
    has_values = file.value_counts.get(number, 0) > file.null_value_counts.get(number, 0)
    return has_values and not (number in file.lower_bounds and number in file.upper_bounds)


def _beginning(file: ContentFile, number: int, type_: str) -> str | bytes | None:
    """The common beginning of both bounds, if it is all of them but the last place, where the upper is rounded up."""
    low, high = file.lower_bounds.get(number), file.upper_bounds.get(number)
    if low is None or high is None:
        return None
    ends = (low.decode(), high.decode()) if type_ == "string" else (low, high)
    least, most = (end[: BOUND_LENGTH - 1] for end in ends)
    return least if len(ends[0]) >= BOUND_LENGTH and least == most else None
