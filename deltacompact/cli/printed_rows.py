"""Prints rows to stdout: one JSON object a line, or with --json one document, {"rows": [...]}."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deltacompact.base.errors import Interrupted
from deltacompact.base.wording import error_document
from deltacompact.cli.answers import Failed, json_row, say


def print_rows(reader: Any, as_json: bool, limit: int | None = None) -> bool:
    """Print at most `limit` rows of a RecordBatchReader. Returns whether there was a row."""
    if as_json:
        return _print_document(_rows(reader, limit))
    found = False
    for row in _rows(reader, limit):
        found = True
        say(json_row(row))
    return found


def _rows(reader: Any, limit: int | None) -> Iterator[dict[str, Any]]:
    from deltacompact.cli.printed_values import printed_rows

    if limit == 0:
        return
    for batch in reader:
        yield from printed_rows(batch.slice(0, limit))
        limit = None if limit is None else limit - min(limit, batch.num_rows)
        if limit == 0:
            return


def _print_document(rows: Iterator[dict[str, Any]]) -> bool:
    """Print the document row by row. It is complete JSON even if reading fails or is interrupted halfway."""
    first = next(rows, None)  # errors in the request are raised before anything is printed
    try:
        say('{"rows": [')
        if first is not None:
            say(json_row(first), end="")
        for row in rows:
            say(",\n" + json_row(row), end="")
    except (Exception, KeyboardInterrupt) as error:
        told = Interrupted("interrupted") if isinstance(error, KeyboardInterrupt) else error
        say(f'],\n"error": {json_row(error_document(told))}}}')
        raise Failed(told) from error
    say("]}")
    return first is not None
