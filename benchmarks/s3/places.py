"""Where a table lies while it is measured: on local files, or on an S3 server behind a proxy.

local files           the catalog's folder, copied by links
S3, 0 ms              the same objects, put straight into the server; a proxy counts what the compaction asks for
S3, 30 ms, 90 MB/s    a second proxy before the same server: every answer is late, every connection slow
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from benchmarks.competitors import linked_copy
from benchmarks.s3.certificate import certificate
from benchmarks.s3.proxy import Conditions, Counts
from benchmarks.s3.proxy_process import Proxy
from benchmarks.s3.scenarios import Made, name_of

_UPLOADS = 16
REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class Brought:
    """A table at a place: URIs of its catalog and of the files that it refers to; what its process needs to know."""

    catalog: str
    files: str
    environment: dict[str, str] = field(default_factory=dict)


class Place(Protocol):
    """Where tables are brought to, one for each measurement."""

    name: str

    def bring(self, made: Made, folder: Path) -> Brought: ...

    def clear(self, brought: Brought) -> None: ...

    def counts(self) -> Counts:
        """Requests so far."""


class Local:
    """The folder of a measurement."""

    name = "local files"

    def bring(self, made: Made, folder: Path) -> Brought:
        catalog = folder / "catalog"
        if made.catalog:
            linked_copy(made.catalog, catalog)
        homes = {path.parent.parent.parent for path in made.files}
        return Brought(str(catalog), str(homes.pop()) if homes else "")

    def clear(self, brought: Brought) -> None:
        """The folder goes after the measurement."""

    def counts(self) -> Counts:
        return Counts()


class Bucket:
    """A bucket of a server: filled directly, past the proxies."""

    def __init__(self, endpoint: str, credentials: dict[str, str]) -> None:
        import boto3
        from botocore.config import Config

        self.endpoint, self.credentials = endpoint, credentials
        session = boto3.Session(credentials["AWS_ACCESS_KEY_ID"], credentials["AWS_SECRET_ACCESS_KEY"], None, REGION)
        config = Config(max_pool_connections=_UPLOADS)
        self._bucket: Any = session.resource("s3", endpoint_url=endpoint, config=config).Bucket(
            f"deltacompact-bench-{uuid.uuid4().hex[:8]}"
        )
        self._bucket.create()
        self._uploaded: set[str] = set()
        self.uri = f"s3://{self._bucket.name}"

    def put_once(self, files: Iterable[Path], prefix: str) -> None:
        self._put({key: path for path in files if (key := f"{prefix}/{name_of(path)}") not in self._uploaded})

    def put_folder(self, folder: Path, prefix: str) -> None:
        paths = [path for path in folder.rglob("*") if path.is_file()]
        self._put({f"{prefix}/{path.relative_to(folder).as_posix()}": path for path in paths})

    def _put(self, files: dict[str, Path]) -> None:
        with ThreadPoolExecutor(_UPLOADS) as threads:
            list(threads.map(lambda item: self._bucket.upload_file(str(item[1]), item[0]), files.items()))
        self._uploaded |= files.keys()

    def clear(self, prefix: str) -> None:
        for upload in self._bucket.multipart_uploads.all():
            upload.abort()
        self._bucket.objects.filter(Prefix=prefix).delete()

    def remove(self) -> None:
        self.clear("")
        self._bucket.delete()


class S3:
    """The bucket behind a proxy with its conditions. `authority`: the file of who signed the proxy's certificate."""

    def __init__(self, name: str, bucket: Bucket, proxy: Proxy, authority: Path | None = None) -> None:
        self.name = name
        self._bucket, self._proxy = bucket, proxy
        self._trusted = {"AWS_CA_BUNDLE": str(authority)} if authority else {}

    def bring(self, made: Made, folder: Path) -> Brought:
        prefix = f"run-{uuid.uuid4().hex[:8]}"
        self._bucket.put_once(made.files, "files")
        if made.catalog:
            self._bucket.put_folder(made.catalog, prefix)
        where = {"AWS_ENDPOINT_URL_S3": self._proxy.url, "AWS_REGION": REGION}
        environment = {**self._bucket.credentials, **where, **self._trusted}
        return Brought(f"{self._bucket.uri}/{prefix}", f"{self._bucket.uri}/files", environment)

    def clear(self, brought: Brought) -> None:
        self._bucket.clear(brought.catalog.removeprefix(f"{self._bucket.uri}/"))

    def counts(self) -> Counts:
        return self._proxy.counts()


@contextmanager
def places(
    endpoint: str, credentials: dict[str, str], conditions: Conditions, tls: bool = False
) -> Iterator[list[Place]]:
    """Local files, the server as it is, and the server under these conditions. `tls`: proxies speak it to clients."""
    bucket = Bucket(endpoint, credentials)
    try:
        with ExitStack() as open_now:
            signed = open_now.enter_context(certificate()) if tls else None
            there: list[Place] = [Local()]
            for held in (Conditions(), conditions):
                proxy = open_now.enter_context(Proxy(endpoint, held, signed))
                there.append(S3(title_of(held, tls), bucket, proxy, signed and signed.file))
            yield there
    finally:
        bucket.remove()


def title_of(conditions: Conditions, tls: bool = False) -> str:
    rate = f", {conditions.bytes_per_s / 1e6:g} MB/s" if conditions.bytes_per_s else ""
    return f"S3{' over TLS' if tls else ''}, {1e3 * conditions.latency_s:g} ms{rate}"


@contextmanager
def moto() -> Iterator[str]:
    """moto's server in a process of its own: a stand-in where no S3 server is at hand, slow and on few cores."""
    here, there = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_moto, args=(there,), daemon=True)
    process.start()
    there.close()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        here.close()
        process.join(5)
        process.kill()
        process.join()


def _moto(parent: Connection) -> None:
    import logging

    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    parent.send(server.get_host_and_port()[1])
    try:
        parent.recv()  # until the parent leaves
    except EOFError:
        server.stop()
