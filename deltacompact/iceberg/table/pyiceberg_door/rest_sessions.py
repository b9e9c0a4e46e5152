"""Limits how long we wait for a silent REST catalog. Only its users import the client, which takes 0.15 s.

PyIceberg's client waits for ever for a server that takes a request and never answers. We give up: loading a table then
fails with one line, and after a commit the table itself tells whether it took effect.
"""

from __future__ import annotations

import functools
from typing import Any

from pyiceberg.catalog.rest import SNAPSHOT_LOADING_MODE, RestCatalog
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

from deltacompact.base.errors import InputError
from deltacompact.iceberg.table.pyiceberg_door.behaviour import check

CONNECT_S, ANSWER_S = 10.0, 120.0
"""How long we wait for a connection, and for an answer. A commit to a table with large metadata takes seconds."""


class BoundedRestCatalog(RestCatalog):
    """A catalog with limited waits, also for the configuration that it asks the server for while it is made."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        limit_waiting(session)
        return session


class BoundedAdapter(HTTPAdapter):
    """Gives a timeout to requests that have none."""

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> Response:
        return super().send(request, stream, timeout or (CONNECT_S, ANSWER_S), verify, cert, proxies)


def open_rest(name: str, described: dict[str, Any]) -> RestCatalog:
    """The catalog that a configuration describes."""
    _check_sessions()
    return BoundedRestCatalog(name, **described)


def make_rest_ready(catalog: Any) -> None:
    """Limit the wait for a catalog that the caller has loaded.

    Raises InputError for a catalog that hides snapshots, because their files would look like orphans.
    """
    _check_sessions()
    limit_waiting(catalog._session)
    if catalog.properties.get(SNAPSHOT_LOADING_MODE, "all") != "all":
        raise InputError(
            f"Iceberg catalog {catalog.name!r} has {SNAPSHOT_LOADING_MODE}="
            f"{catalog.properties[SNAPSHOT_LOADING_MODE]}: deltacompact must see all snapshots, set it to all"
        )


def limit_waiting(session: Session) -> None:
    """Limit the wait for answers. The user's own adapters stay as they are."""
    for prefix, adapter in list(session.adapters.items()):
        if type(adapter) is HTTPAdapter:
            session.mount(prefix, BoundedAdapter())


@functools.cache
def _check_sessions() -> None:
    """As check_behaviour, for the parts of the REST client that we use."""
    check({"sessions of REST catalogs": _sessions_are_bounded})


def _sessions_are_bounded() -> bool:
    catalog: Any = object.__new__(BoundedRestCatalog)
    catalog.name, catalog.uri, catalog._auth_manager = "probe", "http://nowhere", None
    catalog.properties = {"uri": "http://nowhere", "token": "none"}
    adapters = catalog._create_session().adapters.values()
    return bool(adapters) and all(type(adapter) is BoundedAdapter for adapter in adapters)
