"""Opening the catalogs that PyIceberg's configuration describes."""

from __future__ import annotations

from pyiceberg.catalog import Catalog, load_catalog

from deltacompact.base.errors import InputError
from deltacompact.base.wording import text_of
from deltacompact.catalog.iceberg.table.pyiceberg_door.behaviour import check_behaviour
from deltacompact.catalog.iceberg.table.pyiceberg_door.errors import answering


def open_named(name: str) -> Catalog:
    """The catalog that PyIceberg's configuration describes under this name. Raises InputError for an unknown one."""
    check_behaviour()
    if not name:
        raise InputError("iceberg:// names no catalog: iceberg://NAME, configured as PyIceberg does")
    try:
        with answering(name):
            return load_catalog(name)
    except (ValueError, KeyError) as error:
        raise InputError(
            f"Iceberg catalog {name!r} is not configured (.pyiceberg.yaml, PYICEBERG_CATALOG__{name.upper()}__URI): "
            f"{text_of(error)}"
        ) from None


def is_catalog(value: object) -> bool:
    """Whether it is a loaded catalog of PyIceberg."""
    return isinstance(value, Catalog)
