"""Generations of an index: the newest counts, the next one is put if absent. A lost race costs time and nothing else.

    …06.json   run a, run b        the one before stays, with its files: somebody may be reading it
    …07.json   run a, run c        c is b merged with new files
    …08.json   put if absent       whoever is second leaves the index as the first one wrote it

Every generation is right about the files that it has, so it does not matter who wins. Whoever puts one deletes what is
older than the generation before, and the files that only those name.
"""

from __future__ import annotations

from dataclasses import replace

from deltacompact.base.errors import DeltaCompactError
from deltacompact.iceberg.key_index.document import (
    KeyIndex,
    index_of,
    names_in,
)
from deltacompact.iceberg.key_index.terms import Terms
from deltacompact.storage.numbered import listed, numbered_path, read_newest
from deltacompact.storage.objects import ObjectStore


def newest(store: ObjectStore, terms: Terms) -> KeyIndex:
    """The newest generation: generation 0 where there is none."""
    found = read_newest(store, terms.folder)
    if found is None:
        return KeyIndex(terms, 0)
    generation, data = found
    return index_of(data, terms, generation.number, generation.stat.modified_s)


def newest_generation(store: ObjectStore, terms: Terms) -> int:
    """Its number alone, whatever is in it."""
    return max(listed(store, terms.folder), default=0)


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
    old = [stat for number, stat in listed(store, folder).items() if number < new.generation - 1]
    if not old:
        return
    needed = new.names | _names(store, folder, numbered_path(folder, new.generation - 1))
    for stat in old:
        gone = _names(store, folder, stat.path) - needed
        store.delete(sorted(gone))
        store.delete([stat.path])


def _names(store: ObjectStore, folder: str, path: str) -> frozenset[str]:
    """The files that a generation names, as far as it can be read: `maintain` removes the rest by age."""
    try:
        return names_in(store.get(path), folder, path)
    except DeltaCompactError:
        return frozenset()
