"""The other tables of a catalog: where their files may lie.

    ns          t1, t2         location, and the folders that properties name: write.data.path and others
    ns.inner    t3             namespaces may be nested

It costs a request or two for each table, so it is asked only where something could be deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import BadRequestError, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.typedef import Identifier

from deltacompact.base.errors import DeltaCompactError, InputError, PassingError
from deltacompact.base.wording import counted, text_of
from deltacompact.iceberg.table.metadata import folders_named
from deltacompact.iceberg.table.pyiceberg_door.catalogs import is_rest
from deltacompact.iceberg.table.pyiceberg_door.errors import UNREADABLE, answering, first_of

PROGRESS_EACH = 500
"""We report progress after so many tables each."""
_AT_ONCE = 8


class UnlistedError(InputError):
    """The catalog does not show all of its tables."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another table of the catalog, and all folders in which its files may lie.

    `is_spelling`: its name differs by case only from ours, which the catalog does not list. Some servers fold names.
    """

    table_id: str
    uuid: str
    folders: tuple[str, ...]
    is_spelling: bool = False


def neighbours(catalog: Catalog, own: Identifier, say: Callable[[str], None]) -> Iterator[Neighbour]:
    """All tables but our own. Raises UnlistedError, where the catalog does not list or load one."""
    try:
        known = listed(catalog)
    except PassingError as error:
        raise UnlistedError(text_of(error)) from error
    others = [identifier for identifier in known if identifier != own]
    unlisted = None if own in known else _folded(own)
    if others:
        say(f"asking {counted(len(others), 'other table')} of the catalog where files lie")

    def asked(identifier: Identifier) -> Neighbour | None:
        return _neighbour(catalog, identifier)

    with ThreadPoolExecutor(asked_at_once(catalog)) as pool:
        for number, neighbour in enumerate(pool.map(asked, others), 1):
            if number % PROGRESS_EACH == 0:
                say(f"asked {number:,} of {counted(len(others), 'table')}")
            if neighbour is not None:
                yield replace(neighbour, is_spelling=_folded(others[number - 1]) == unlisted)


def _folded(identifier: Identifier) -> Identifier:
    return tuple(part.casefold() for part in identifier)


def listed(catalog: Catalog) -> list[Identifier]:
    """All tables of a catalog. Raises UnlistedError, where it does not list them, and StoreError, where it does not
    answer."""
    try:
        with answering(catalog.name):
            found = [table for namespace in _namespaces(catalog, ()) for table in catalog.list_tables(namespace)]
    except PassingError:
        raise
    except (DeltaCompactError, *UNREADABLE, NoSuchNamespaceError) as error:
        raise UnlistedError(f"Iceberg catalog {catalog.name!r} does not list its tables ({text_of(error)})") from error
    return list(dict.fromkeys(found))


def asked_at_once(catalog: Catalog) -> int:
    """How many threads may ask a catalog: several only for REST, whose client is known to be safe for that."""
    return _AT_ONCE if is_rest(catalog) else 1


def _namespaces(catalog: Catalog, above: Identifier) -> Iterator[Identifier]:
    try:
        found = catalog.list_namespaces(above)
    except (BadRequestError, NoSuchNamespaceError):
        if not above:
            raise
        return  # a server without nested namespaces, or it was dropped meanwhile
    for namespace in found:
        if namespace[: len(above)] == above and len(namespace) > len(above):
            yield namespace
            yield from _namespaces(catalog, namespace)


def _neighbour(catalog: Catalog, identifier: Identifier) -> Neighbour | None:
    """The table with this name. None: it was dropped meanwhile, or is no Iceberg table."""
    table_id = ".".join(identifier)
    try:
        with answering(catalog.name):
            table = catalog.load_table(identifier)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    except Exception as error:
        raise UnlistedError(f"table {table_id!r} cannot be loaded ({first_of(error)})") from error
    named = folders_named(table.metadata.location, table.metadata.properties)
    folders = {*named, table.metadata_location.rpartition("/")[0]}
    return Neighbour(table_id, str(table.metadata.table_uuid), tuple(sorted(folders)))
