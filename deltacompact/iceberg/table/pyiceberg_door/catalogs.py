"""Opening the catalogs that PyIceberg's configuration describes, and taking those that somebody else has loaded."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import SNAPSHOT_LOADING_MODE, RestCatalog
from pyiceberg.utils.config import Config

from deltacompact.base.errors import InputError
from deltacompact.base.wording import text_of
from deltacompact.iceberg.table.pyiceberg_door.behaviour import check_behaviour
from deltacompact.iceberg.table.pyiceberg_door.errors import answering
from deltacompact.iceberg.table.pyiceberg_door.rest_sessions import BoundedRestCatalog, limit_waiting


def open_named(name: str) -> Catalog:
    """The catalog that PyIceberg's configuration describes under this name. Raises InputError for an unknown one."""
    check_behaviour()
    if not name:
        raise InputError("iceberg:// names no catalog: iceberg://NAME, configured as PyIceberg does")
    try:
        with answering(name):
            return _loaded(name)
    except (ValueError, KeyError) as error:
        why = text_of(error).partition(", please provide")[0]  # what follows are options of PyIceberg's own commands
        raise InputError(
            f"Iceberg catalog {name!r} is not configured: {why}. Set it in .pyiceberg.yaml, or by "
            f"PYICEBERG_CATALOG__{name.upper()}__URI and others"
        ) from None


def is_catalog(value: object) -> bool:
    """Whether it is a loaded catalog of PyIceberg."""
    return isinstance(value, Catalog)


def make_ready(catalog: Catalog) -> None:
    """Limit the wait for a REST catalog that somebody else has loaded.

    Raises InputError for one that would not show us all snapshots: files of those would be taken for orphans.
    """
    if isinstance(catalog, RestCatalog):
        limit_waiting(catalog._session)
        if catalog.properties.get(SNAPSHOT_LOADING_MODE, "all") != "all":
            raise InputError(
                f"Iceberg catalog {catalog.name!r} has {SNAPSHOT_LOADING_MODE}="
                f"{catalog.properties[SNAPSHOT_LOADING_MODE]}: deltacompact must see all snapshots, set it to all"
            )


def _loaded(name: str) -> Catalog:
    described: dict[str, Any] = dict(Config().get_catalog_config(name) or {})
    uri = str(described.get("uri", ""))
    kind = str(described.get("type") or ("rest" if uri.startswith("http") else ""))
    return BoundedRestCatalog(name, **described) if kind.lower() == "rest" and uri else load_catalog(name)
