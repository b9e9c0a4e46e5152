"""Writes the tables of options from their declarations: `python docs/options_page.py`.

iceberg-options.md     a table for each mode
settings.md            one of Settings, and one of the other parameters of compact(), between their markers
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

from deltacompact.base.options import Option, declared
from deltacompact.base.settings import Options, Settings
from deltacompact.cli.compaction import compact
from deltacompact.iceberg_modes.modes import MAINTAIN, names, options_of

PATH = Path(__file__).with_name("iceberg-options.md")
SETTINGS = Path(__file__).with_name("settings.md")
_TABLE = re.compile(r"(<!-- (Settings|Options) -->\n\n).*?(?=\n\n<!-- end -->)", re.S)
_PARAMETERS = {"content_type": "compacted_file_content_type"}
_HEAD = """# Options for Iceberg tables

Command line: `--option KEY=VALUE`; Python: `options={…}`; job runs: `options`.
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


def settings_page(text: str) -> str:
    """docs/settings.md with its two tables made anew."""
    tables = {"Settings": _settings_table(Settings), "Options": _settings_table(Options)}
    return _TABLE.sub(lambda found: found[1] + tables[found[2]], text)


def _settings_table(options: type[Any]) -> str:
    """A table of the fields that a class has and its parents have not."""
    flags = {parameter.name: parameter.opts[0] for parameter in compact.params}
    names = [field.name for field in dataclasses.fields(options) if field.name in options.__annotations__]
    said = declared(options)
    rows = [
        f"| {', '.join(f'`{one}`' for one in (_PARAMETERS.get(name, name), flags.get(name)) if one)} "
        f"| {said[name].default} | {said[name].meaning} |"
        for name in names
    ]
    return "\n".join(["| name, option | default | what it means |", "|---|---|---|", *rows])


if __name__ == "__main__":
    PATH.write_text(page())
    SETTINGS.write_text(settings_page(SETTINGS.read_text()))
