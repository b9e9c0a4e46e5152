"""Clients of S3 side by side: how many MB a second of their own CPU moves.

python -m benchmarks.s3_clients --endpoint http://127.0.0.1:9000 --endpoint https://127.0.0.1:9443

Each measurement is a process of its own: 16 ranges in flight, or 4 parts of 8 MiB. CPU is what that process used, the
kernel's work for it included, so a busy machine changes little. Credentials come from AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY, a private CA from AWS_CA_BUNDLE.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import click

MIB = 1 << 20
BUCKET, KEY = "deltacompact-s3-clients", "object"
OBJECT_BYTES = 256 * MIB
PART_BYTES = 8 * MIB
RANGES_AT_ONCE, PARTS_AT_ONCE = 16, 4
REGION = "us-east-1"

Fetch = Callable[[int, int], int]
"""(start, length) -> bytes that came"""
Write = Callable[[int, bytes], None]
"""(parts, bytes of each)"""
Client = Callable[[str], tuple[Fetch, Write]]


def boto3_client(endpoint: str) -> tuple[Fetch, Write]:
    """As it is by default: Body.read() and upload_part."""
    import boto3
    from botocore.config import Config

    client = boto3.client("s3", endpoint_url=endpoint, region_name=REGION, config=Config(max_pool_connections=32))

    def fetch(start: int, length: int) -> int:
        answer = client.get_object(Bucket=BUCKET, Key=KEY, Range=f"bytes={start}-{start + length - 1}")
        return len(answer["Body"].read())

    def write(parts: int, data: bytes) -> None:
        named = {"Bucket": BUCKET, "Key": "written"}
        upload = client.create_multipart_upload(**named, ChecksumAlgorithm="CRC32")["UploadId"]

        def send(number: int) -> dict[str, Any]:
            sent = client.upload_part(**named, UploadId=upload, PartNumber=number, Body=data)
            return {"PartNumber": number, "ETag": sent["ETag"], "ChecksumCRC32": sent["ChecksumCRC32"]}

        with ThreadPoolExecutor(PARTS_AT_ONCE) as threads:
            done = list(threads.map(send, range(1, parts + 1)))
        client.complete_multipart_upload(**named, UploadId=upload, MultipartUpload={"Parts": done})

    return fetch, write


def arrow_client(endpoint: str) -> tuple[Fetch, Write]:
    from pyarrow import fs

    url = urlsplit(endpoint)
    files = fs.S3FileSystem(
        access_key=os.environ["AWS_ACCESS_KEY_ID"],
        secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        region=REGION,
        endpoint_override=url.netloc,
        scheme=url.scheme,
        tls_ca_file_path=os.environ.get("AWS_CA_BUNDLE"),
    )
    local = threading.local()

    def fetch(start: int, length: int) -> int:
        if not hasattr(local, "file"):
            local.file = files.open_input_file(f"{BUCKET}/{KEY}")
        local.file.seek(start)
        return int(local.file.read_buffer(length).size)

    def write(parts: int, data: bytes) -> None:
        with files.open_output_stream(f"{BUCKET}/written") as sink:
            for _ in range(parts):
                sink.write(data)

    return fetch, write


def obstore_store(endpoint: str) -> Any:
    from obstore.store import S3Store

    client: dict[str, Any] = {"allow_http": True, "timeout": "600s"}
    if bundle := os.environ.get("AWS_CA_BUNDLE"):
        with open(bundle, "rb") as file:
            client["root_certificate"] = file.read()
    return S3Store(BUCKET, endpoint=endpoint, region=REGION, client_options=client, unsigned_payload=True)


def obstore_threads(endpoint: str) -> tuple[Fetch, Write]:
    """Its blocking calls, in threads. Parts are sent without a checksum."""
    import obstore

    store = obstore_store(endpoint)

    def fetch(start: int, length: int) -> int:
        return len(obstore.get(store, KEY, options={"range": (start, start + length)}).bytes())

    def write(parts: int, data: bytes) -> None:
        pieces = (data for _ in range(parts))
        obstore.put(store, "written", pieces, chunk_size=len(data), max_concurrency=PARTS_AT_ONCE)

    return fetch, write


def obstore_loop(endpoint: str) -> tuple[Fetch, Write]:
    """Its asynchronous calls, on one event loop."""
    import obstore

    store = obstore_store(endpoint)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    async def get(start: int, length: int) -> int:
        answer = await obstore.get_async(store, KEY, options={"range": (start, start + length)})
        return len(await answer.bytes_async())

    def fetch(start: int, length: int) -> int:
        return asyncio.run_coroutine_threadsafe(get(start, length), loop).result()

    return fetch, obstore_threads(endpoint)[1]


def deltacompact_client(endpoint: str) -> tuple[Fetch, Write]:
    from deltacompact.storage.s3 import S3Store
    from deltacompact.storage.s3_access import S3Settings

    store = S3Store(BUCKET, "", S3Settings(endpoint_url=endpoint, region=REGION))
    store.stat(KEY)

    def fetch(start: int, length: int) -> int:
        return int(store.fetch(KEY, start, length).result().data.size)

    def write(parts: int, data: bytes) -> None:
        with store.writer("written") as sink:
            for _ in range(parts):
                sink.write(data)

    return fetch, write


CLIENTS: dict[str, Client] = {
    "boto3": boto3_client,
    "Arrow": arrow_client,
    "obstore, threads": obstore_threads,
    "obstore, event loop": obstore_loop,
    "deltacompact": deltacompact_client,
}
MEASURES = {"ranges of 64 KiB": MIB // 16, "1 MiB": MIB, "4 MiB": 4 * MIB, "16 MiB": 16 * MIB, "parts": 0}


def mb_per_cpu_s(client: str, endpoint: str, length: int) -> float:
    """Fetch ranges of this length, or write parts if it is 0."""
    fetch, write = CLIENTS[client](endpoint)
    if not length:
        data, parts = os.urandom(PART_BYTES), OBJECT_BYTES // PART_BYTES
        write(2, data)
        return _measured(lambda: write(parts, data), parts * PART_BYTES)
    count = min(2048, OBJECT_BYTES // length)
    starts = [number * length % OBJECT_BYTES for number in range(count)]
    with ThreadPoolExecutor(RANGES_AT_ONCE) as threads:

        def run(begins: Iterable[int]) -> None:
            under_way: deque[Future[int]] = deque(threads.submit(fetch, start, length) for start in begins)
            if not all(answer.result() == length for answer in under_way):
                raise click.ClickException(f"{client} fetched too few bytes")

        run(starts[: 2 * RANGES_AT_ONCE])
        return _measured(lambda: run(starts), count * length)


def _measured(act: Callable[[], None], moved: int) -> float:
    before = time.process_time()
    act()
    return moved / 1e6 / (time.process_time() - before)


def _prepare(endpoint: str) -> None:
    import boto3

    client = boto3.client("s3", endpoint_url=endpoint, region_name=REGION)
    if BUCKET not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket=BUCKET)
    client.put_object(Bucket=BUCKET, Key=KEY, Body=os.urandom(OBJECT_BYTES))


@click.command()
@click.option(
    "--endpoint", "endpoints", multiple=True, required=True, help="Its bucket deltacompact-s3-clients is used."
)
@click.option(
    "--repeat", "repeats", type=click.IntRange(min=1), default=3, show_default=True, help="The median counts."
)
def main(endpoints: tuple[str, ...], repeats: int) -> None:
    """MB for each CPU second of the client, as a table in Markdown."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for endpoint in endpoints:
        _prepare(endpoint)
    for _ in range(repeats):  # clients take turns, so that all see the same disturbances
        for endpoint in endpoints:
            for measure, length in MEASURES.items():
                for client in CLIENTS:
                    command = [sys.executable, "-m", "benchmarks.s3_clients", client, endpoint, str(length)]
                    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                    found.setdefault((endpoint, client, measure), []).append(float(done.stdout))
    for endpoint in endpoints:
        click.echo(f"\n| {urlsplit(endpoint).scheme} | {' | '.join(MEASURES)} |\n|---|{'---|' * len(MEASURES)}")
        for client in CLIENTS:
            medians = (statistics.median(found[endpoint, client, measure]) for measure in MEASURES)
            click.echo(f"| {client} | {' | '.join(f'{median:,.0f}' for median in medians)} |")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in CLIENTS:  # one measurement, for the command above
        print(mb_per_cpu_s(sys.argv[1], sys.argv[2], int(sys.argv[3])), flush=True)
        os._exit(0)  # obstore's threads would still need the interpreter for a moment
    else:
        main()
