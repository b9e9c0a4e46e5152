"""A mode is a value. `modes.py` lists all modes; catalog, `compact()`, command line and job runs loop over that list.

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
    """A way to compact a branch.

    name            users give it, plans and journals store it: never change its meaning
    doing           a word for progress messages: "rewriting"
    text            its purpose, for `--help`
    options         the dataclass that declares its options
    read_options    makes the options from chosen ones and table properties. Raises InputError
    steps           imports and gives its Steps
    compares        whether it compares which of two rows came later
    lays_out        whether it may lay rows out by columns, so that readers skip files
    marks           whether it writes position deletes or deletion vectors
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
