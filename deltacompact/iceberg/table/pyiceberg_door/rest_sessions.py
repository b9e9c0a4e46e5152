"""REST catalogs, and how long one that is silent is waited for. The client takes 0.15 s to import: others do without.

PyIceberg's client waits for ever for a server that takes a request and never answers. We give up: loading the table
then ends in one line, and a commit is resolved by the table itself.
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
    """It asks the server for its configuration while it is made, and waits no longer for that either."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        limit_waiting(session)
        return session


class BoundedAdapter(HTTPAdapter):
    """Gives requests that have no timeout one."""

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
    """Limit the wait for a catalog that somebody else has loaded.

    Raises InputError for a catalog that hides snapshots: their files would be taken for orphans.
    """
    _check_sessions()
    limit_waiting(catalog._session)
    if catalog.properties.get(SNAPSHOT_LOADING_MODE, "all") != "all":
        raise InputError(
            f"Iceberg catalog {catalog.name!r} has {SNAPSHOT_LOADING_MODE}="
            f"{catalog.properties[SNAPSHOT_LOADING_MODE]}: deltacompact must see all snapshots, set it to all"
        )


def limit_waiting(session: Session) -> None:
    """Limit the wait for answers. Adapters of the user's own stay as they are."""
    for prefix, adapter in list(session.adapters.items()):
        if type(adapter) is HTTPAdapter:
            session.mount(prefix, BoundedAdapter())


@functools.cache
def _check_sessions() -> None:
    """As check_behaviour, for those who use the client."""
    check({"sessions of REST catalogs": _sessions_are_bounded})


def _sessions_are_bounded() -> bool:
    catalog: Any = object.__new__(BoundedRestCatalog)
    catalog.name, catalog.uri, catalog._auth_manager = "probe", "http://nowhere", None
    catalog.properties = {"uri": "http://nowhere", "token": "none"}
    adapters = catalog._create_session().adapters.values()
    return bool(adapters) and all(type(found) is BoundedAdapter for found in adapters)
