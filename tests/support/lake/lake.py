"""A lake: a world, and one actor of each kind."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from columns import PLAIN

from .advisor import Advisor
from .compactor import Compactor
from .destination import Destination
from .historian import Historian
from .limits import LakeLimits
from .model import Content, Shape
from .publisher import Publisher
from .reader import Reader
from .vacuum import Vacuum
from .world import World
from .writer import Writer


class Lake:
    """Use as a context manager: closing a lake undoes its limits."""

    def __init__(self, shape: Shape, limits: LakeLimits | None = None) -> None:
        self.world = World(shape, limits or LakeLimits())
        self.writer = Writer(self.world)
        self.compactor = Compactor(self.world, Destination(self.world))
        self.vacuum = Vacuum(self.world)
        self.historian = Historian(self.world)
        self.advisor = Advisor(self.world)
        self.publisher = Publisher(self.world)
        self.reader = Reader(self.world)

    def __enter__(self) -> Lake:
        return self

    def __exit__(self, *error: Any) -> None:
        self.world.close()


SMALL = Shape(
    keys={"k": PLAIN["integer"]},
    sorts={"s": PLAIN["integer"]},
    directions=("ascending",),
    payloads={"note": PLAIN["string"]},
    retention=None,
    days=(None,),
    declared=True,
    plain=True,
)
"""One key, one sort key and a note, for tests that choose the rows themselves."""


def rows(*keys: int, s: int | None = 1) -> list[Content]:
    """One file for a table of the small shape."""
    types = {"k": pa.int64(), "s": pa.int64(), "note": pa.string()}
    return [([{"k": key, "s": s, "note": f"note {key}"} for key in keys], types)]
