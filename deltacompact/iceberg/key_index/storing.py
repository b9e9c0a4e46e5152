"""Generations of an index: the newest counts, the next one is put if absent. A lost race costs time and nothing else.

    …06.json   run a, run b        the one before stays, with its files: somebody may be reading it
    …07.json   run a, run c        c is b merged with new files
    …08.json   put if absent       of two sessions, the second leaves the index as the first wrote it

Every generation is right about the files that it has, so it does not matter who wins. The winner deletes generations
that are older than the one before its own, and the run files that only those name.
"""

from __future__ import annotations

from dataclasses import replace

from deltacompact.base.errors import DeltaCompactError
from deltacompact.iceberg.key_index.document import KeyIndex, index_of, names_in
from deltacompact.iceberg.key_index.terms import Terms
from deltacompact.storage.numbered import listed, numbered_path, read_newest
from deltacompact.storage.objects import ObjectStore


def newest(store: ObjectStore, terms: Terms) -> KeyIndex:
    """The newest generation; generation 0, without runs, if the index does not exist."""
    found = read_newest(store, terms.folder)
    if found is None:
        return KeyIndex(terms, 0)
    generation, data = found
    return index_of(data, terms, generation.number, generation.stat.modified_s)


def newest_generation(store: ObjectStore, terms: Terms) -> int:
    """The number of the newest generation, which is not read."""
    return max(listed(store, terms.folder), default=0)


def publish(store: ObjectStore, index: KeyIndex) -> KeyIndex:
    """Put `index` as the next generation, unless somebody else has put one. Returns our generation either way.

    Raises the store's errors. The generation may be there then; it is right in any case.
    """
    new = replace(index, generation=index.generation + 1)
    if store.put_if_absent(new.path, new.to_bytes()):
        _tidy(store, new)
    return new


def _tidy(store: ObjectStore, new: KeyIndex) -> None:
    """Delete all generations before the one that `new` replaced, and the run files that only they name."""
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
    """The files that a generation names; none if it cannot be read: then `maintain` removes them by age."""
    try:
        return names_in(store.get(path), folder, path)
    except DeltaCompactError:
        return frozenset()
