"""Generations of an index: the newest counts, the next one is put if absent. A lost race costs time and nothing else.

    …06.json   run a, run b        the one before stays, with its files: somebody may be reading it
    …07.json   run a, run c        c is b merged with new files
    …08.json   put if absent       whoever is second leaves the index as the first one wrote it

Every generation is right about the files that it has, so it does not matter who wins. Whoever puts one deletes what is
older than the generation before, and the files that only those name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from deltacompact.base.errors import DeltaCompactError, NotFoundError
from deltacompact.iceberg.key_index.document import (
    KeyIndex,
    index_of,
    names_in,
    path_of,
)
from deltacompact.iceberg.key_index.terms import Terms
from deltacompact.storage.objects import ObjectStat, ObjectStore

GENERATION = re.compile(r"(\d{20})\.json")


_LOOKS = 3
"""How often the newest generation is looked for, if two newer ones come before it is read."""


def newest(store: ObjectStore, terms: Terms) -> KeyIndex:
    """The newest generation: generation 0 where there is none."""
    for look in range(1, _LOOKS + 1):
        found = max(_generations(store, terms.folder), key=lambda one: one[0], default=None)
        if found is None:
            break
        generation, stat = found
        try:
            return index_of(store.get(stat.path), terms, generation, stat.modified_s)
        except NotFoundError:
            if look == _LOOKS:
                raise
    return KeyIndex(terms, 0)


def newest_generation(store: ObjectStore, terms: Terms) -> int:
    """Its number alone, whatever is in it."""
    return max((number for number, _ in _generations(store, terms.folder)), default=0)


def publish(store: ObjectStore, index: KeyIndex) -> KeyIndex:
    """Put the generation behind `index`'s, with its runs, unless somebody else has done so. Returns what was to be put.

    Raises what the store raises; then nobody knows whether the generation is there, and it is right either way.
    """
    new = replace(index, generation=index.generation + 1)
    if store.put_if_absent(new.path, new.to_bytes()):
        _tidy(store, new)
    return new


def _tidy(store: ObjectStore, new: KeyIndex) -> None:
    """Delete generations before the last one, and what only they name."""
    folder = new.terms.folder
    old = [(number, stat) for number, stat in _generations(store, folder) if number < new.generation - 1]
    if not old:
        return
    needed = new.names | _names(store, folder, path_of(folder, new.generation - 1))
    for _, stat in old:
        gone = _names(store, folder, stat.path) - needed
        store.delete(sorted(gone))
        store.delete([stat.path])


def _names(store: ObjectStore, folder: str, path: str) -> frozenset[str]:
    """The files that a generation names, as far as it can be read: `maintain` removes the rest by age."""
    try:
        return names_in(store.get(path), folder, path)
    except DeltaCompactError:
        return frozenset()


def _generations(store: ObjectStore, folder: str) -> Iterator[tuple[int, ObjectStat]]:
    for stat in store.list(folder):
        if match := GENERATION.fullmatch(stat.path.removeprefix(folder)):
            yield int(match[1]), stat
