"""The part of a Kubernetes API server that the real kubectl needs, for some kinds of objects.

RAY_JOB    checked by KubeRay's schema
POD        the test provides the pods

The server stores what kubectl posts, and refuses fields that the schema lacks, as strict field validation does.
A test plays KubeRay: it writes the status of a RayJob.
"""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from jsonschema import Draft202012Validator

_KUBERAY = Path(__file__).parents[1] / "sessions" / "launchers" / "kuberay"
SCHEMA = json.loads((_KUBERAY / "rayjob.v1.schema.json").read_text())


def strict(schema: Any) -> Any:
    """The schema, made to refuse unknown fields, as an API server with strict field validation does."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
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
    """The schema's errors in a RayJob. Metadata is not checked: an API server fills it in."""
    closed = strict({**SCHEMA, "properties": {**SCHEMA["properties"], "metadata": {}}})
    return [f"{error.json_path}: {error.message}" for error in Draft202012Validator(closed).iter_errors(manifest)]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of objects. `group` is "" for core objects. `refusals` lists the errors in a manifest."""

    group: str
    version: str
    kind: str
    plural: str
    refusals: Callable[[dict[str, Any]], list[str]]
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"}, hash=False)

    @property
    def group_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        return f"apis/{self.group_version}" if self.group else f"api/{self.version}"


RAY_JOB = Kind("ray.io", "v1", "RayJob", "rayjobs", refusals, SCHEMA)
POD = Kind("", "v1", "Pod", "pods", lambda manifest: [])


def merged(before: Any, patch: Any) -> Any:
    """RFC 7396, without kubectl's directives."""
    if not isinstance(before, dict) or not isinstance(patch, dict):
        return patch
    changes = {key: merged(before.get(key), value) for key, value in patch.items() if not key.startswith("$")}
    return {key: value for key, value in (before | changes).items() if value is not None}


class KubeApi:
    """`stored` has the objects by plural and name, `objects` the RayJobs, `calls` the requests that changed objects."""

    def __init__(self, kinds: Sequence[Kind] = (RAY_JOB, POD)) -> None:
        self.kinds = {kind.plural: kind for kind in kinds}
        self.stored: dict[str, dict[str, dict[str, Any]]] = {kind.plural: {} for kind in kinds}
        self.objects = self.stored.get("rayjobs", {})
        self.pods: list[dict[str, Any]] = []
        self.logs: dict[str, str] = {}
        self.calls: list[str] = []
        self.url = ""
        self.documents = _discovery(kinds)

    def created(self, manifest: dict[str, Any], number: int) -> dict[str, Any]:
        stored = copy.deepcopy(manifest)
        stored["metadata"] |= {
            "uid": f"uid-{number}",
            "resourceVersion": str(number),
            "creationTimestamp": "2026-11-22T10:00:00Z",
        }
        return stored


_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def _discovery(kinds: Sequence[Kind]) -> dict[str, Any]:
    """The answers that kubectl needs first: groups, kinds, and whether the server checks fields itself."""
    of_versions: dict[str, list[Kind]] = {}
    for kind in kinds:
        of_versions.setdefault(kind.group_version, []).append(kind)
    groups = {kind.group: kind.version for kind in kinds if kind.group}
    documents: dict[str, Any] = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [_group(group, version) for group, version in groups.items()],
        },
        "/openapi/v3": {
            "paths": {
                kind.root: {"serverRelativeURL": f"/openapi/v3/{kind.root}?hash=1"} for kind in kinds if kind is not POD
            }
        },
    }
    for group_version, of_version in of_versions.items():
        root = of_version[0].root
        documents[f"/{root}"] = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": group_version,
            "resources": [
                {
                    "name": kind.plural,
                    "singularName": kind.kind.lower(),
                    "namespaced": True,
                    "kind": kind.kind,
                    "verbs": _VERBS,
                }
                for kind in of_version
            ],
        }
        documents[f"/openapi/v3/{root}"] = _open_api(root, of_version)
    return documents


def _group(group: str, version: str) -> dict[str, Any]:
    named = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [named], "preferredVersion": named}


def _open_api(root: str, kinds: Sequence[Kind]) -> dict[str, Any]:
    named = {kind.plural: {"group": kind.group, "version": kind.version, "kind": kind.kind} for kind in kinds}
    checks = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.32.0"},
        "paths": {
            f"/{root}/namespaces/{{namespace}}/{plural}/{{name}}": {
                "patch": {"parameters": checks, "x-kubernetes-group-version-kind": name}
            }
            for plural, name in named.items()
        },
        "components": {
            "schemas": {
                f"{kind.group or 'core'}.{kind.version}.{kind.kind}": {
                    **kind.schema,
                    "x-kubernetes-group-version-kind": [named[kind.plural]],
                }
                for kind in kinds
            }
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
        if path in self.api.documents:
            return self.answer(200, self.api.documents[path])
        if re.fullmatch("/api/v1/namespaces/[^/]+", path):
            return self.answer(
                200, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": path.split("/")[-1]}}
            )
        plural, name = self.named(path)
        if plural == "pods" and path.endswith("/log"):
            return self.answer(200, self.api.logs.get(query["container"][0], ""))
        if plural == "pods" and name:
            return self.answer(200, next(pod for pod in self.api.pods if pod["metadata"]["name"] == name))
        if plural and name:
            found = self.api.stored[plural].get(name)
            return self.answer(200, found) if found else self.missing(plural, name)
        if plural:
            wanted = dict(part.split("=") for part in query.get("labelSelector", [""])[0].split(",") if part)
            every = self.api.pods if plural == "pods" else self.api.stored[plural].values()
            items = [item for item in every if wanted.items() <= item["metadata"].get("labels", {}).items()]
            kind = self.api.kinds[plural]
            listed = {"apiVersion": kind.group_version, "kind": f"{kind.kind}List", "items": items}
            return self.answer(200, {**listed, "metadata": {"resourceVersion": "9"}})
        self.failed(404, "NotFound", path)

    def do_POST(self) -> None:
        manifest = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = manifest["metadata"]["name"]
        self.api.calls.append(f"create {name}")
        plural, _ = self.named(self.where[0])
        if not plural:
            return self.failed(404, "NotFound", "the server could not find the requested resource")
        kind, stored = self.api.kinds[plural], self.api.stored[plural]
        if found := kind.refusals(manifest):
            return self.failed(422, "Invalid", f"{kind.kind} {name} is invalid: {found[0]}")
        if name in stored:
            return self.failed(409, "AlreadyExists", f"{name} already exists")
        stored[name] = self.api.created(manifest, len(self.api.calls))
        self.answer(201, stored[name])

    def do_PATCH(self) -> None:
        """Merge the patch: kubectl only sends patches that set fields, or a selector that stays as it was."""
        patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        plural, name = self.named(self.where[0])
        before = self.api.stored[plural][name]
        after = merged(before, patch)
        if after != before:
            self.api.calls.append(f"patch {name}")
            after = self.api.created(after, len(self.api.calls))
        self.api.stored[plural][name] = after
        self.answer(200, after)

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        plural, name = self.named(self.where[0])
        self.api.calls.append(f"delete {name}")
        found = self.api.stored[plural].pop(name, None)
        if found is None:
            return self.missing(plural, name)
        self.answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": {"name": name}})

    def missing(self, plural: str, name: str) -> None:
        kind = self.api.kinds[plural]
        self.failed(404, "NotFound", f'{kind.plural}{"." if kind.group else ""}{kind.group} "{name}" not found')

    def named(self, path: str) -> tuple[str, str]:
        """("rayjobs", "a") of /apis/ray.io/v1/namespaces/default/rayjobs/a"""
        for kind in self.api.kinds.values():
            if found := re.match(rf"/{kind.root}/namespaces/[^/]+/{kind.plural}(?:/([^/]+))?", path):
                return kind.plural, found[1] or ""
        return "", ""


@contextmanager
def kube_api(kinds: Sequence[Kind] = (RAY_JOB, POD)) -> Iterator[KubeApi]:
    """A server on a port of its own."""
    api = KubeApi(kinds)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": api}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    api.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
