"""How a command answers: as text or as one JSON document; and for several partitions, the good ones beside the bad."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from deltacompact.base.wording import error_document, one_line
from deltacompact.cli.console import writes_utf8

if TYPE_CHECKING:
    from deltacompact.base.model import Partition
    from deltacompact.catalog.delta_stream.catalog import DeltaStreamCatalog

T = TypeVar("T")


class Failed(Exception):
    """Raised by a command that has said what went wrong in its answer: only the exit status is left to tell."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def say(text: str, end: str = "\n") -> None:
    """Print as it is. click would write UTF-8 to a terminal that is not, where the stream is not given."""
    click.echo(text + end, file=sys.stdout, nl=False)


def say_json(document: Any) -> None:
    say(json.dumps(document, indent=2, default=str))


def json_row(row: dict[str, Any]) -> str:
    """A row as one line. Letters stay as they are where the terminal can show them."""
    ascii_only = not writes_utf8()
    try:
        return json.dumps(row, default=str, ensure_ascii=ascii_only, allow_nan=False)
    except ValueError:
        return json.dumps(_spelled_out(row), default=str, ensure_ascii=ascii_only)


def _spelled_out(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are strings ("nan", "inf")."""
    if isinstance(value, dict):
        return {name: _spelled_out(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_spelled_out(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def answer(as_json: bool, document: Any, *lines: str) -> None:
    """Say one thing in either way."""
    if as_json:
        say_json(document)
        return
    from deltacompact.cli.console import out

    for line in lines:
        out.print(line)


def for_each(
    catalog: DeltaStreamCatalog, table: str, only: Partition | None, work: Callable[[Partition], Iterable[T]]
) -> tuple[list[T], list[tuple[Partition, Exception]]]:
    """The results of all partitions (or of one) for which the work succeeds, and the errors of the others."""
    from deltacompact.base.partitions import done_for_each

    chosen = catalog.partitions(table) if only is None else [only]
    results, errors = done_for_each(chosen, lambda partition: list(work(partition)))
    return [item for found in results for item in found], errors


def answer_for_partitions(
    as_json: bool,
    results: Sequence[T],
    errors: Sequence[tuple[Partition, Exception]],
    document: Callable[[T], dict[str, Any]],
    say: Callable[[T], None],
) -> None:
    """Say each result and each error; raises Failed for the first error. No partition at all: nothing to do."""
    from deltacompact.cli.console import out
    from deltacompact.cli.report import NOTHING_HELD

    if as_json:
        failed = [{"partition": dict(place.values), "error": error_document(error)} for place, error in errors]
        say_json([*map(document, results), *failed])
    else:
        for result in results:
            say(result)
        for place, error in errors:
            out.print(f"{place}: failed: {one_line(error)}", style="red")
        if not results and not errors:
            out.print(NOTHING_HELD)
    if errors:
        raise Failed(errors[0][1])
