"""Writes docs/iceberg-options.md from the declarations of the options: `python docs/options_page.py`."""

from __future__ import annotations

from pathlib import Path

from deltacompact.iceberg_modes.modes import MAINTAIN, names, options_of
from deltacompact.iceberg_modes.options import Option, declared

PATH = Path(__file__).with_name("iceberg-options.md")
_HEAD = """# Options for Iceberg tables

On the command line, give each one as `--option KEY=VALUE`; in Python, as `options={…}`; in a job run, in `options`.
This page is made from the code by `python docs/options_page.py`. [Iceberg tables](iceberg.md) says what the modes do.
"""
_OF = {
    "rewrite": "They have the names and defaults of Iceberg's `rewrite_data_files`. As in Iceberg, a file is not "
    "rewritten for its equality deletes alone: `delete-file-threshold=1` chooses all to which one may apply.",
    "maintain": "A property of the table is the default of the option that has its name.",
}


def page() -> str:
    """The page, with a table for each mode."""
    return _HEAD + "".join(map(_of_mode, (*names(), MAINTAIN)))


def _of_mode(name: str) -> str:
    said = f"{_OF[name]}\n\n" if name in _OF else ""
    rows = "\n".join(map(_row, declared(options_of(name)).values()))
    return f"\n## {name}\n\n{said}| option | default | what it means |\n|---|---|---|\n{rows}\n"


def _row(option: Option) -> str:
    names = ", ".join(f"`{name}`" for name in reversed(option.names))
    default = f"`{option.default}`" if option.default in ("true", "false") else option.default
    return f"| {names} | {default} | {option.meaning} |"


if __name__ == "__main__":
    PATH.write_text(page())
