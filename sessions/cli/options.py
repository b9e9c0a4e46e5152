"""Options that several commands have."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from deltacompact.base.errors import InputError
from deltacompact.cli.finite_range import FiniteRange
from deltacompact.cli.sections import refuse

if TYPE_CHECKING:
    from sessions.documents.instruction import Instruction

F = TypeVar("F", bound=Callable[..., Any])

document_argument = click.argument("document", metavar="DOC.json")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
queue_option = click.option(
    "--queue", required=True, metavar="QUEUE", help="A directory (file:///path or a path), or the URL of an SQS queue."
)
dead_letters_option = click.option(
    "--dead-letters", metavar="URL", help="SQS: the dead-letter queue. Default: that of the queue's redrive policy."
)
state_option = click.option(
    "--state", required=True, metavar="URI", help="A folder or s3://bucket/prefix that dispatchers share."
)
allow_option = click.option(
    "--allow",
    multiple=True,
    metavar="CATALOG_PREFIX",
    help="Documents may name only catalogs under this prefix, or the Iceberg catalog iceberg://NAME; repeatable. "
    "Default: any catalog but Iceberg's.",
)
host_option = click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on."
)


def port_option(what: str, default: int | None = None) -> Callable[[F], F]:
    """`--port`: of the page, or of what machines ask for."""
    return click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=default,
        show_default=default is not None,
        metavar="P",
        help=f"Port of {what}; 0: any." + ("" if default is not None else " Default: none."),
    )


def only_with(needed: str, is_given: bool, *flags: str) -> None:
    """Refuse options of the command line that would be ignored: `--host` without `--port`."""
    if not is_given:
        refuse(flags, f"is for {needed}.")


class Seconds(FiniteRange):
    """A number of seconds."""

    name = "number of seconds"


def seconds_option(name: str, default: float, least: float, most: float | None, text: str) -> Callable[[F], F]:
    """An option of seconds: `--lease` becomes the parameter `lease_s`."""
    return click.option(
        f"--{name}",
        f"{name.replace('-', '_')}_s",
        type=Seconds(least, most),
        default=int(default) if default.is_integer() else default,  # --help has no "60.0"
        show_default=True,
        metavar="SECONDS",
        help=text,
    )


def document_at(path: str) -> Instruction:
    """The instruction document in a file, or on stdin ("-"). Raises RefusedDocument, which names the field."""
    from sessions.documents.instruction import parse
    from sessions.documents.json_text import DOCUMENT_BYTES_MAX

    try:
        if path == "-":
            return parse(sys.stdin.buffer.read(DOCUMENT_BYTES_MAX + 1))
        with open(path, "rb") as file:
            return parse(file.read(DOCUMENT_BYTES_MAX + 1))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
