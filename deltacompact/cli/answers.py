"""The answers of commands: text or one JSON document. If some partitions fail, the others are still answered."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from deltacompact.base.errors import Interrupted
from deltacompact.base.wording import counted, error_document, one_line
from deltacompact.cli.console import writes_utf8
from deltacompact.reports.scale import WORST, Detail

if TYPE_CHECKING:
    from deltacompact.base.model import Partition
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog

T = TypeVar("T")


class Failed(Exception):
    """Raised by a command that has printed the error in its answer: it only sets the exit status."""

    def __init__(self, error: Exception | Interrupted) -> None:
        super().__init__(str(error))
        self.error = error


def say(text: str, end: str = "\n") -> None:
    """Print text unchanged. Without `file`, click would write UTF-8 to a terminal that cannot show it."""
    click.echo(text + end, file=sys.stdout, nl=False)


def say_json(document: Any) -> None:
    say(json.dumps(document, indent=2, default=str))


def note(text: str) -> None:
    """One line on stderr, beside an answer that may be piped on."""
    click.echo(text, file=sys.stderr)


def json_row(row: dict[str, Any]) -> str:
    """A row as one line. Non-ASCII letters are escaped only where the terminal cannot show them."""
    ascii_only = not writes_utf8()
    try:
        return json.dumps(row, default=_text, ensure_ascii=ascii_only, allow_nan=False)
    except ValueError:
        return json.dumps(_spelled_out(row), default=_text, ensure_ascii=ascii_only)


def _text(value: Any) -> str:
    """Bytes as hexadecimal digits, as Iceberg's specification writes single values; other values as Python does."""
    return value.hex() if isinstance(value, bytes) else str(value)


def _spelled_out(value: Any) -> Any:
    """JSON has no NaN and no infinity, so write them as strings ("nan", "inf")."""
    if isinstance(value, dict):
        return {name: _spelled_out(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_spelled_out(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def answer(as_json: bool, document: Any, *lines: str) -> None:
    """Print the document as JSON, or the lines as text."""
    if as_json:
        say_json(document)
        return
    from deltacompact.cli.console import out

    for line in lines:
        out.print(line)


def of_partition(result: Any) -> dict[str, Any]:
    """The document of a result, a dataclass with the field `partition`."""
    return {**dataclasses.asdict(result), "partition": dict(result.partition.values)}


def for_each(
    catalog: DeltaStreamCatalog,
    table: str,
    only: Partition | None,
    doing: str,
    work: Callable[[Partition], Iterable[T]],
    at_once: int = 1,
) -> tuple[list[T], list[tuple[Partition, Exception]]]:
    """Do the work for all partitions, or for one. Returns the results of those that succeed, and the others' errors.

    `doing`: the work in a word, such as "checking". A terminal shows it, with the number of partitions that are done.
    """
    from deltacompact.base.partitions import done_for_each
    from deltacompact.cli.console import err
    from deltacompact.cli.counting import counting

    chosen = catalog.chosen(table, only)
    with counting(err, f"{doing} {table}", len(chosen)) as one_is_done:

        def counted_work(partition: Partition) -> list[T]:
            try:
                return list(work(partition))
            finally:
                one_is_done()

        results, errors = done_for_each(chosen, counted_work, at_once)
    return [item for result in results for item in result], errors


@dataclasses.dataclass(frozen=True, slots=True)
class Totals(Generic[T]):
    """How to print more partitions than fit on a screen: the totals of all, and the worst ten."""

    words: Callable[[Sequence[T]], str]
    badness: Callable[[T], int]
    detail: Detail


def answer_for_partitions(
    as_json: bool,
    results: Sequence[T],
    errors: Sequence[tuple[Partition, Exception]],
    document: Callable[[T], dict[str, Any]],
    say: Callable[[T], None],
    totals: Totals[T] | None = None,
) -> None:
    """Print results and errors, each of them, or with `totals` first the totals. Raises Failed for the first error.

    `document` makes a result's JSON, `say` prints its lines. Without results and errors, there was nothing to do.
    """
    from deltacompact.cli.console import out
    from deltacompact.reports.words import NOTHING_HELD

    if as_json:
        failed = [{"partition": dict(partition.values), "error": error_document(error)} for partition, error in errors]
        say_json([*map(document, results), *failed])
    else:
        detail = totals.detail if totals else Detail(verbose=True)
        if totals and results and len(results) + len(errors) > 1:
            besides = f", {len(errors):,} failed" if errors else ""
            out.print(f"{counted(len(results) + len(errors), 'partition')}{besides}: {totals.words(results)}")
        for result in detail.chosen(results, totals.badness) if totals else results:
            say(result)
        for line in detail.rest(len(results), "partition"):
            out.print(line)
        for partition, error in errors if detail.verbose else errors[:WORST]:
            out.print(f"{partition}: failed: {one_line(error)}", style="red")
        for line in detail.rest(len(errors), "failed partition"):
            out.print(line)
        if not results and not errors:
            out.print(NOTHING_HELD)
    if errors:
        raise Failed(errors[0][1])
