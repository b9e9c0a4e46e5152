"""A REST catalog of our own: the server's side of Iceberg's Java, behind HTTP, on the catalog of a Lake.

    server = RestServer(spark, lake)
    server.catalog()                                           PyIceberg's client of it
    server.answers(Answer(502, carried_out=True))              the next commit takes effect, and its answer is lost
    server.loads(Answer(503), Answer(503))                     the next two loads fail

Requests go to `org.apache.iceberg.rest.CatalogHandlers` in Spark's JVM, which checks requirements and writes metadata.
Iceberg's own REST fixture is made of the same handlers, parsers and status codes. The handlers commit to the lake's
sqlite file, so that the lake's writers and Spark share the tables.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from iceberg_lake import Lake
from py4j.protocol import Py4JJavaError
from pyiceberg.catalog.rest import RestCatalog

_STATUS = {
    "IllegalArgumentException": 400,
    "ValidationException": 400,
    "NamespaceNotEmptyException": 400,
    "NotAuthorizedException": 401,
    "ForbiddenException": 403,
    "NoSuchNamespaceException": 404,
    "NoSuchTableException": 404,
    "UnsupportedOperationException": 406,
    "AlreadyExistsException": 409,
    "CommitFailedException": 409,
    "UnprocessableEntityException": 422,
}
"""As Iceberg's RESTCatalogAdapter. Every other exception is a 500."""
_NAMESPACES, _NAMESPACE = re.compile("/v1/namespaces"), re.compile("/v1/namespaces/([^/]+)")
_TABLES, _TABLE = re.compile("/v1/namespaces/([^/]+)/tables"), re.compile("/v1/namespaces/([^/]+)/tables/([^/]+)")


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered instead of the truth. Status 0: the connection is closed; `silent_s`: nothing for so long."""

    status: int = 0
    carried_out: bool = False
    body: str = ""
    silent_s: float = 0.0


class RestServer:
    """Serves one lake. `config` and `credentials` are what it says of each table; `before_commit` runs first."""

    def __init__(self, spark: Any, lake: Lake) -> None:
        self.lake = lake
        self.asked: list[str] = []
        """Method and path of every request."""
        self.config: dict[str, str] = {}
        self.credentials: list[dict[str, Any]] = []
        self.before_commit: Callable[[], None] | None = None
        self._commits: deque[Answer | None] = deque()
        self._loads: deque[Answer] = deque()
        self._java = _Handlers(spark, lake)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        self.uri = f"http://127.0.0.1:{self._http.server_port}"

    def catalog(self, **properties: Any) -> RestCatalog:
        return RestCatalog(self.lake.name, **{"type": "rest", "uri": self.uri} | properties)

    def answers(self, *answers: Answer | None) -> None:
        """What the next commits are answered. None: the truth."""
        self._commits.extend(answers)

    def loads(self, *answers: Answer) -> None:
        """What the next loads of a table are answered."""
        self._loads.extend(answers)

    @property
    def commits_asked(self) -> int:
        return sum(line.startswith("POST") and "/tables/" in line for line in self.asked)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._java.close()

    def respond(self, method: str, path: str, body: str, parent: str = "") -> tuple[int, str] | None:
        """Status and body; None: the connection is to be closed. `parent`: the namespace whose own are listed."""
        self.asked.append(f"{method} {path}")
        is_table = _TABLE.fullmatch(path) is not None
        chosen: Answer | None = None
        if is_table and method == "POST":
            if self.before_commit is not None:
                act, self.before_commit = self.before_commit, None
                act()
            chosen = self._commits.popleft() if self._commits else None
        elif is_table and method == "GET":
            chosen = self._loads.popleft() if self._loads else None
        if chosen is None or chosen.carried_out:
            truth = self._truth(method, path, body, parent)
        if chosen is None:
            return truth
        time.sleep(chosen.silent_s)
        return (chosen.status, chosen.body) if chosen.status else None

    def _truth(self, method: str, path: str, body: str, parent: str) -> tuple[int, str]:
        try:
            if method == "GET" and _NAMESPACES.fullmatch(path):
                return 200, self._java.namespaces(parent)
            return 200, self._java.run(method, path, body, self._described)
        except Py4JJavaError as error:
            kind, text = error.java_exception.getClass().getSimpleName(), str(error.java_exception.getMessage())
            status = _STATUS.get(kind, 500)
            return status, json.dumps({"error": {"message": text, "type": kind, "code": status}})

    def _described(self, table: str) -> str:
        """What is said of a table, with its credentials."""
        return json.dumps(json.loads(table) | {"config": self.config, "storage-credentials": self.credentials})


class _Handlers:
    """Iceberg's CatalogHandlers on a JdbcCatalog."""

    def __init__(self, spark: Any, lake: Lake) -> None:
        jvm = spark._jvm
        self._rest = jvm.org.apache.iceberg.rest
        self._catalog_package = jvm.org.apache.iceberg.catalog
        options = {"uri": f"jdbc:sqlite:{lake.database}", "warehouse": lake.warehouse, "jdbc.schema-version": "V1"}
        conf = spark.sparkContext._jsc.hadoopConfiguration()
        self._catalog = jvm.org.apache.iceberg.CatalogUtil.loadCatalog(
            "org.apache.iceberg.jdbc.JdbcCatalog",
            lake.name,
            options | {"io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"},
            conf,
        )
        jackson = jvm.org.apache.iceberg.shaded.com.fasterxml.jackson
        self._json = jackson.databind.ObjectMapper()
        fields = jackson.annotation.PropertyAccessor.FIELD
        self._json.setVisibility(fields, getattr(jackson.annotation, "JsonAutoDetect$Visibility").ANY)
        self._json.setPropertyNamingStrategy(getattr(jackson.databind, "PropertyNamingStrategies$KebabCaseStrategy")())
        self._rest.RESTSerializers.registerAll(self._json)

    def close(self) -> None:
        self._catalog.close()

    def run(self, method: str, path: str, body: str, described: Callable[[str], str]) -> str:
        """The JSON that is answered."""
        handlers = self._rest.CatalogHandlers
        if path == "/v1/config":
            return json.dumps({"defaults": {}, "overrides": {}})
        if found := _TABLE.fullmatch(path):
            name = self._catalog_package.TableIdentifier.parse(".".join(map(unquote, found.groups())))
            if method == "GET":
                every = getattr(self._rest, "RESTCatalogProperties$SnapshotMode").ALL
                return described(self._table(handlers.loadTable(self._catalog, name, every)))
            if method == "POST":
                request = self._rest.requests.UpdateTableRequestParser.fromJson(body)
                return self._table(handlers.updateTable(self._catalog, name, request))
            handlers.dropTable(self._catalog, name)
            return ""
        if found := _TABLES.fullmatch(path):
            namespace = self._namespace(unquote(found[1]))
            if method == "GET":
                return str(self._json.writeValueAsString(handlers.listTables(self._catalog, namespace)))
            request = self._read("CreateTableRequest", body)
            make = handlers.stageTableCreate if request.stageCreate() else handlers.createTable
            return described(self._table(make(self._catalog, namespace, request)))
        if found := _NAMESPACE.fullmatch(path):
            return str(self._json.writeValueAsString(handlers.loadNamespace(self._catalog, self._namespace(found[1]))))
        request = self._read("CreateNamespaceRequest", body)
        return str(self._json.writeValueAsString(handlers.createNamespace(self._catalog, request)))

    def namespaces(self, parent: str) -> str:
        """The namespaces in another one, or the outermost."""
        within = self._namespace(parent) if parent else self._catalog_package.Namespace.empty()
        return str(self._json.writeValueAsString(self._rest.CatalogHandlers.listNamespaces(self._catalog, within)))

    def _read(self, kind: str, body: str) -> Any:
        return self._json.readValue(body, getattr(self._rest.requests, kind)().getClass())

    def _table(self, response: Any) -> str:
        return str(self._rest.responses.LoadTableResponseParser.toJson(response))

    def _namespace(self, name: str) -> Any:
        return self._catalog_package.TableIdentifier.parse(f"{name}.any").namespace()


def _handler_of(server: RestServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
            asked = urlsplit(self.path)
            (parent,) = parse_qs(asked.query).get("parent", [""])
            found = server.respond(self.command, asked.path, body, unquote(parent))
            if found is None:
                self.close_connection = True
                return
            status, text = found
            data = text.encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = do_HEAD = _serve

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is logged."""

    return Handler
