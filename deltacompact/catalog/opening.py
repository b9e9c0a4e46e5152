"""Which catalog a URI names.

./lake, file:///lake, s3://lake/tables       delta streams
iceberg://prod                               the Iceberg catalog "prod" of PyIceberg's configuration
a loaded pyiceberg.catalog.Catalog           that one
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, overload

from deltacompact.base.errors import InputError
from deltacompact.base.model import CATALOG_VARIABLE, ICEBERG
from deltacompact.base.user_calls import user_call

if TYPE_CHECKING:  # each kind is imported when it is opened, and PyIceberg takes a second
    from typing_extensions import TypeIs

    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog
    from deltacompact.iceberg.table.pyiceberg_door import Catalog
    from deltacompact.storage.s3_access import S3Settings


@overload
def open_catalog(uri: str | os.PathLike[str] | None = None, *, s3: S3Settings | None = None) -> DeltaStreamCatalog: ...


@overload
def open_catalog(uri: Catalog) -> IcebergCatalog: ...


@user_call
def open_catalog(
    uri: str | os.PathLike[str] | Any | None = None, *, s3: S3Settings | None = None
) -> DeltaStreamCatalog | IcebergCatalog:
    """The catalog at `uri`: "file:///path", "s3://bucket/prefix" or a local path; default: $DELTACOMPACT_CATALOG.

    "iceberg://NAME" is the Iceberg catalog that PyIceberg's configuration describes under this name (.pyiceberg.yaml,
    or PYICEBERG_CATALOG__NAME__URI and others). A loaded `pyiceberg.catalog.Catalog` is taken as it is.

    A type checker does not read URIs, and takes a catalog by URI for a DeltaStreamCatalog. For an Iceberg catalog give
    it `IcebergCatalog.at("iceberg://NAME")`, which is the same.

    Opening sends no request. Raises InputError for a URI that names no catalog. `s3` says how to reach S3, instead of
    the environment.

    Examples:
        >>> deltacompact.open_catalog("./lake").tables()
        ['orders']
    """
    named = os.environ.get(CATALOG_VARIABLE) if uri is None else uri
    if not is_iceberg(named):
        from deltacompact.catalog import delta_streams

        return delta_streams.open_catalog(uri, s3=s3)
    from deltacompact.catalog.iceberg import IcebergCatalog

    if s3 is not None:
        raise InputError("s3 is for delta streams: an Iceberg catalog's S3 is set as PyIceberg does, or by AWS_…")
    return IcebergCatalog.at(named) if isinstance(named, str) else IcebergCatalog(named)


def is_iceberg_catalog(catalog: object) -> TypeIs[IcebergCatalog]:
    """Whether it is a catalog that `open_catalog` made of an Iceberg URI. Does not import PyIceberg."""
    if "deltacompact.catalog.iceberg" not in sys.modules:
        return False
    from deltacompact.catalog.iceberg import IcebergCatalog

    return isinstance(catalog, IcebergCatalog)


def is_iceberg(uri: object) -> bool:
    """Whether it is an Iceberg catalog, or a URI of one."""
    if isinstance(uri, str):
        return uri.startswith(ICEBERG)
    if "pyiceberg.catalog" not in sys.modules:  # then nobody has loaded a catalog
        return False
    from deltacompact.iceberg.table.pyiceberg_door import is_catalog

    return is_catalog(uri)
