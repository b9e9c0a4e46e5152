"""Random histories of many partitions, one of which goes bad: every other one has the oracle's rows at each step.

    append, delete, compact everything …      p17 is damaged: its log, its index, a delta, a compacted file
    compact everything                        an error that names p17; the other 23 are compacted
    read, check, vacuum, publish              of the other 23, all is well

DELTACOMPACT_TEST_PARTITIONS makes more of them.
"""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pytest
from oracle import Oracle

import deltacompact
from deltacompact.base.errors import DeltaCompactError
from deltacompact.base.settings import Settings

PARTITIONS = int(os.environ.get("DELTACOMPACT_TEST_PARTITIONS", "24"))
STEPS = 3
SETTINGS = Settings(executor="local", local_threads=2)


def _cut(path):
    path.write_bytes(path.read_bytes()[:-9])


DAMAGES = {
    "a log that is nonsense": ("stream", lambda path: path.write_bytes(b"{")),
    "an index that is nonsense": ("index", lambda path: path.write_bytes(b"nonsense")),
    "files that are cut": ("data", _cut),
    "files that are gone": ("data", lambda path: path.unlink()),
}


class History:
    """A table of many partitions, and what each of them must hold."""

    def __init__(self, folder, seed):
        self.dice = random.Random(seed)
        self.root = folder / "lake"
        self.catalog = deltacompact.open_catalog(self.root)
        self.catalog.create_table("t", ["p"], ["id"])
        self.names = [f"p{number}" for number in range(PARTITIONS)]
        self.oracles = {name: Oracle(["id"]) for name in self.names}

    def write(self, name):
        """An upsert of some rows, sometimes a delete of some keys."""
        is_first = not self.oracles[name].upserts
        ids = range(30) if is_first else self.dice.sample(range(30), self.dice.randint(1, 12))
        if not is_first and self.dice.random() < 0.3:
            rows = [{"id": number} for number in ids]
            operation = "delete"
        else:
            rows = [{"id": number, "v": self.dice.random()} for number in ids]
            operation = "upsert"
        delta = self.catalog.append("t", pa.Table.from_pylist(rows), {"p": name}, operation)
        self.oracles[name].apply(delta.position, operation, [rows])

    def damage(self, name, kind):
        folder, destroy = DAMAGES[kind]
        found = [path for path in (self.root / "t" / f"p={name}" / folder).rglob("*") if path.is_file()]
        assert found
        for path in found:
            destroy(path)

    def check(self, names):
        fresh = deltacompact.open_catalog(self.root)
        for name in names:
            found = fresh.read("t", {"p": name}).to_pylist()
            expected = {row["id"]: row["v"] for row in self.oracles[name].rows()}
            assert [row["id"] for row in found] == [*dict.fromkeys(row["id"] for row in found)]
            assert {row["id"]: row["v"] for row in found} == expected, name
            (result,) = deltacompact.check(fresh, "t", {"p": name})
            assert result.problems == ()

    def is_compacted(self, name):
        return not deltacompact.open_catalog(self.root).state("t", self.catalog.partition("t", {"p": name})).deltas


@pytest.mark.slow
@pytest.mark.parametrize("kind", DAMAGES)
def test_whatever_is_bad_about_one_partition_the_others_are_compacted_and_lose_nothing(tmp_path, kind):
    history = History(tmp_path, f"{kind} of {PARTITIONS}")
    for name in history.names:
        history.write(name)
    deltacompact.compact("t", delta_catalog_client=history.catalog, settings=SETTINGS)
    bad = history.dice.choice(history.names)
    history.damage(bad, kind)
    good = [name for name in history.names if name != bad]
    named = 0
    for _ in range(STEPS):
        changed = [bad, *history.dice.sample(good, PARTITIONS // 2)]
        history.catalog = deltacompact.open_catalog(history.root)
        for name in changed:
            try:
                history.write(name)
            except DeltaCompactError as error:
                assert name == bad
                named += f"p={bad}" in str(error)
        result = deltacompact.compact("t", delta_catalog_client=history.catalog, settings=SETTINGS)
        errors = {session.partition["p"]: str(session.error) for session in result.sessions if session.error}
        assert set(errors) <= {bad}, "files that nothing touches are not opened"
        named += sum(f"p={bad}" in error for error in errors.values())
        assert all(history.is_compacted(name) for name in good)
        history.check(history.dice.sample(good, 5))
    assert named
    history.check(good)
    for name in good:
        deltacompact.vacuum(history.catalog, "t", {"p": name})
    history.check(good)
