"""Opens the catalogs that PyIceberg's configuration describes, and prepares those that the caller has loaded."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from pyiceberg.catalog import Catalog as Catalog  # handed on, for annotations
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from deltacompact.base.errors import InputError
from deltacompact.base.wording import table_meant, text_of
from deltacompact.iceberg.table.pyiceberg_door.behaviour import check_behaviour
from deltacompact.iceberg.table.pyiceberg_door.errors import answering
from deltacompact.iceberg.table.pyiceberg_door.release import importing


def open_named(name: str) -> Catalog:
    """The catalog that PyIceberg's configuration describes under this name. Raises InputError for an unknown one."""
    check_behaviour()
    if not name or "/" in name:
        raise InputError(f"iceberg://{name} names no catalog: write iceberg://NAME, configured as PyIceberg does")
    try:
        with answering(name):
            return _loaded(name)
    except (ValueError, KeyError, TypeError) as error:
        why = text_of(error).partition(", please provide")[0]  # what follows are options of PyIceberg's own commands
        meant = ""
        with contextlib.suppress(ValueError):  # what is configured is no list of catalogs
            meant = table_meant(name, Config().get_known_catalogs())
        raise InputError(f"Iceberg catalog {name!r} is not configured: {why}{meant}. {_how_to_set(name)}") from None


def is_catalog(value: object) -> bool:
    """Whether it is a loaded catalog of PyIceberg."""
    return isinstance(value, Catalog)


def make_ready(catalog: Catalog) -> None:
    """Prepare a catalog that the caller may have loaded. Raises InputError for one that we cannot use."""
    if is_rest(catalog):
        with importing():
            from deltacompact.iceberg.table.pyiceberg_door.rest_sessions import make_rest_ready

        make_rest_ready(catalog)


def is_rest(catalog: Catalog) -> bool:
    """Whether it is a client of a REST catalog. Does not import that client."""
    client = sys.modules.get("pyiceberg.catalog.rest")
    return client is not None and isinstance(catalog, client.RestCatalog)


def _how_to_set(name: str) -> str:
    """Where a catalog is described. PyIceberg takes an underscore in a variable for a hyphen in the catalog's name."""
    called = name.lower().replace("_", "-")
    variable = f"PYICEBERG_CATALOG__{called.replace('-', '_').upper()}__URI"
    otherwise = "" if called == name.lower() else f", which are for iceberg://{called}"
    return f"Set it in .pyiceberg.yaml, or by {variable} and others{otherwise}"


def _loaded(name: str) -> Catalog:
    described: dict[str, Any] = dict(Config().get_catalog_config(name) or {})
    uri = str(described.get("uri", ""))
    kind = str(described.get("type") or ("rest" if uri.startswith("http") else ""))
    if kind.lower() != "rest" or not uri:
        return load_catalog(name)
    with importing():
        from deltacompact.iceberg.table.pyiceberg_door.rest_sessions import open_rest

    return open_rest(name, described)
