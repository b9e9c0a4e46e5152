"""What every command of the benchmarks needs: a folder, somebody to tell, and options that are lists of names."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console

_FOLDER = Path(tempfile.gettempdir()) / "deltacompact-benchmarks"


def made(folder: Path | None, name: str) -> Path:
    """The folder, or one of this name in a temporary one; it is there afterwards."""
    chosen = (folder or _FOLDER / name).absolute()
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen


def teller() -> Callable[[str], None]:
    """Progress goes to stderr, line by line."""
    progress = Console(stderr=True)
    return lambda text: progress.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)


def names_among(known: tuple[str, ...]) -> Callable[[click.Context, click.Parameter, str], tuple[str, ...]]:
    """A callback for an option of comma-separated names. Refuses names that are not known."""

    def parse(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[str, ...]:
        names = tuple(filter(None, (name.strip() for name in text.split(","))))
        if unknown := [name for name in names if name not in known]:
            raise click.BadParameter(f"{', '.join(unknown)}: not among {', '.join(known)}")
        return names

    return parse
