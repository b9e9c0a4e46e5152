"""What a mode is: a value. `modes.py` lists them all, and whoever has to do with modes goes through that list.

REWRITE = Mode("rewrite", "rewriting", "write files anew, …", RewriteOptions, rewrite_options, _steps)

name, text, options      known at once: the command line, documents of job runs and the docs ask for no more
steps()                  what is done, see steps.py: it imports PyIceberg, which takes a second
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from deltacompact.iceberg_modes.plan import ModePlan
    from deltacompact.iceberg_modes.result import ModeResult
    from deltacompact.iceberg_modes.steps import Steps

Plan = TypeVar("Plan", bound="ModePlan")
Result = TypeVar("Result", bound="ModeResult")


@dataclass(frozen=True, slots=True)
class Mode(Generic[Plan, Result]):
    """One thing that can be done with the files of a branch.

    name            as users give it, and as plans and journals have it: it keeps its meaning
    doing           what a session of it does with files, for those who wait: "rewriting"
    text            what it is for, for `--help`
    options         the dataclass that declares its options
    read_options    the options from what was chosen and from the table's properties. Raises InputError
    steps           what is done
    compares        whether it asks which of two rows came later
    lays_out        whether it may divide rows by columns, so that readers skip files
    marks           whether dead rows are marked by it: position deletes, or deletion vectors
    """

    name: str
    doing: str
    text: str
    options: type[Any]
    read_options: Callable[[Mapping[str, Any], Mapping[str, str]], Any]
    steps: Callable[[], Steps[Plan, Result]]
    compares: bool = False
    lays_out: bool = False
    marks: bool = False
