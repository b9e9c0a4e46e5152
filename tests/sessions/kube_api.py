"""So much of a Kubernetes API server that the real kubectl works against it: RayJobs, held against KubeRay's schema.

It stores what is posted, and refuses what the schema does not know, as an API server with strict field validation does.
What KubeRay would do then, a test does by writing a status.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from jsonschema import Draft202012Validator

SCHEMA = json.loads((Path(__file__).parent / "kuberay" / "rayjob.v1.schema.json").read_text())


def strict(schema: Any) -> Any:
    """The schema, which refuses unknown fields: an API server drops them, and says so where it is strict."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items()}
    open_on_purpose = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-embedded-resource")
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not open_on_purpose:
        closed["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        closed["type"] = ["integer", "string"]
    return closed


def refusals(manifest: dict[str, Any]) -> list[str]:
    """What the schema has against a RayJob. An API server fills in what is metadata."""
    closed = strict({**SCHEMA, "properties": {**SCHEMA["properties"], "metadata": {}}})
    return [f"{error.json_path}: {error.message}" for error in Draft202012Validator(closed).iter_errors(manifest)]


class KubeApi:
    """`objects` by name; `calls` are the methods and paths that changed something."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.pods: list[dict[str, Any]] = []
        self.logs: dict[str, str] = {}
        self.calls: list[str] = []
        self.url = ""

    def created(self, manifest: dict[str, Any], number: int) -> dict[str, Any]:
        stored = copy.deepcopy(manifest)
        stored["metadata"] |= {
            "uid": f"uid-{number}",
            "resourceVersion": str(number),
            "creationTimestamp": "2026-11-22T10:00:00Z",
        }
        return stored


_KIND = {"group": "ray.io", "version": "v1", "kind": "RayJob"}
_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
_LISTS = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [{"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": _VERBS}],
    },
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [
            {
                "name": "ray.io",
                "versions": [{"groupVersion": "ray.io/v1", "version": "v1"}],
                "preferredVersion": {"groupVersion": "ray.io/v1", "version": "v1"},
            }
        ],
    },
    "/apis/ray.io/v1": {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "ray.io/v1",
        "resources": [
            {"name": "rayjobs", "singularName": "rayjob", "namespaced": True, "kind": "RayJob", "verbs": _VERBS}
        ],
    },
    "/openapi/v3": {"paths": {"apis/ray.io/v1": {"serverRelativeURL": "/openapi/v3/apis/ray.io/v1?hash=1"}}},
    "/openapi/v3/apis/ray.io/v1": {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.32.0"},
        "paths": {
            "/apis/ray.io/v1/namespaces/{namespace}/rayjobs/{name}": {
                "patch": {
                    "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
                    "x-kubernetes-group-version-kind": _KIND,
                }
            }
        },
        "components": {"schemas": {"io.ray.v1.RayJob": {**SCHEMA, "x-kubernetes-group-version-kind": [_KIND]}}},
    },
}


class _Handler(BaseHTTPRequestHandler):
    api: KubeApi
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def answer(self, status: int, document: Any) -> None:
        text = isinstance(document, str)
        body = document.encode() if text else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if text else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def failed(self, status: int, reason: str, message: str) -> None:
        self.answer(
            status,
            {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "reason": reason,
                "message": message,
                "code": status,
            },
        )

    @property
    def where(self) -> tuple[str, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        return parts.path, parse_qs(parts.query)

    def do_GET(self) -> None:
        path, query = self.where
        if path == "/openapi/v2":  # kubectl before 1.27 asks for it as a protobuf message: one without any schema
            return self.answer(200, "")
        if path in _LISTS:
            return self.answer(200, _LISTS[path])
        kind, name = _named(path)
        if kind == "rayjobs" and name:
            found = self.api.objects.get(name)
            return (
                self.answer(200, found) if found else self.failed(404, "NotFound", f'rayjobs.ray.io "{name}" not found')
            )
        if kind == "pods" and path.endswith("/log"):
            return self.answer(200, self.api.logs.get(query["container"][0], ""))
        if kind == "pods" and name:
            return self.answer(200, next(pod for pod in self.api.pods if pod["metadata"]["name"] == name))
        if kind in ("rayjobs", "pods"):
            wanted = dict(part.split("=") for part in query.get("labelSelector", [""])[0].split(",") if part)
            every = self.api.objects.values() if kind == "rayjobs" else self.api.pods
            items = [one for one in every if wanted.items() <= one["metadata"].get("labels", {}).items()]
            of = {"rayjobs": ("ray.io/v1", "RayJobList"), "pods": ("v1", "PodList")}[kind]
            return self.answer(
                200, {"apiVersion": of[0], "kind": of[1], "metadata": {"resourceVersion": "9"}, "items": items}
            )
        self.failed(404, "NotFound", path)

    def do_POST(self) -> None:
        manifest = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = manifest["metadata"]["name"]
        self.api.calls.append(f"create {name}")
        if found := refusals(manifest):
            return self.failed(422, "Invalid", f"RayJob {name} is invalid: {found[0]}")
        if name in self.api.objects:
            return self.failed(409, "AlreadyExists", f"{name} already exists")
        self.api.objects[name] = self.api.created(manifest, len(self.api.calls))
        self.answer(201, self.api.objects[name])

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        _, name = _named(self.where[0])
        self.api.calls.append(f"delete {name}")
        found = self.api.objects.pop(name, None)
        if found is None:
            return self.failed(404, "NotFound", f'rayjobs.ray.io "{name}" not found')
        self.answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": {"name": name}})


def _named(path: str) -> tuple[str, str]:
    """("rayjobs", "a") of /apis/ray.io/v1/namespaces/default/rayjobs/a"""
    for kind in ("rayjobs", "pods"):
        before, found, name = path.partition(f"/{kind}")
        if found and "/namespaces/" in before + "/":
            return kind, name.strip("/").split("/")[0]
    return "", ""


@contextmanager
def kube_api() -> Iterator[KubeApi]:
    """A server on a port of its own."""
    api = KubeApi()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": api}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    api.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
