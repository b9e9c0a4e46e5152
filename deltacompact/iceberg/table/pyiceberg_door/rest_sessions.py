"""How long a REST catalog that is silent is waited for.

PyIceberg's client waits for ever for a server that takes a request and never answers. We give up: loading the table
then ends in one line, and a commit is resolved by the table itself.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

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


def limit_waiting(session: Session) -> None:
    """Limit the wait for answers. Adapters of the user's own stay as they are."""
    for prefix, adapter in list(session.adapters.items()):
        if type(adapter) is HTTPAdapter:
            session.mount(prefix, BoundedAdapter())
