"""What a request to S3 is, told from its head: its kind, the object it is about, and what AWS charges for its kind.

PUT /lake/t/stream/0/7.json    If-None-Match: *        conditional PUT of t/stream/0/7.json    charged as a write
GET /lake/t/data/a.parquet     Range: bytes=-65536     ranged GET of t/data/a.parquet          as a read
GET /lake?list-type=2&prefix=t/                        LIST                                    as a write
PUT /lake/t/b.parquet?partNumber=2&uploadId=x          part of t/b.parquet                     as a write
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qs, unquote, urlsplit

from sessions.planning.prices import RequestPrices


class Kind(StrEnum):
    """As reports name it. A copy is that of an object, or of a part of one."""

    GET = "GET"
    RANGED_GET = "ranged GET"
    HEAD = "HEAD"
    LIST = "LIST"
    PUT = "PUT"
    CONDITIONAL_PUT = "conditional PUT"
    BEGIN = "begin upload"
    PART = "part"
    COPY = "copy"
    COMPLETE = "complete"
    ABORT = "abort"
    DELETE = "DELETE"
    OTHER = "other"


READS = frozenset({Kind.GET, Kind.RANGED_GET, Kind.HEAD, Kind.OTHER})
FREE = frozenset({Kind.DELETE, Kind.ABORT})
"""All other kinds cost what a PUT costs, LIST among them."""


def usd(requests: Mapping[str, float], prices: RequestPrices) -> float:
    """What these requests cost, by kind."""
    reads = sum(count for kind, count in requests.items() if kind in READS)
    writes = sum(count for kind, count in requests.items() if kind not in READS | FREE)
    return (reads * prices.read_usd_per_million + writes * prices.write_usd_per_million) / 1e6


@dataclass(frozen=True, slots=True)
class Request:
    """A request without its body. `key` is empty if it is about a bucket; `part` is the range or number of the part."""

    kind: Kind
    key: str
    part: str = ""


def request_of(method: str, target: str, headers: Mapping[str, str]) -> Request:
    """Path-style requests alone. `headers` have lower-case names."""
    url = urlsplit(target)
    key = unquote(url.path.lstrip("/").partition("/")[2])
    query = parse_qs(url.query, keep_blank_values=True)
    part = headers.get("range", "") or query.get("partNumber", [""])[0]
    return Request(_kind_of(method, key, query, headers), key, part)


def _kind_of(method: str, key: str, query: Mapping[str, object], headers: Mapping[str, str]) -> Kind:
    match method:
        case "HEAD" if key:
            return Kind.HEAD
        case "GET" if key:
            return Kind.LIST if "uploadId" in query else Kind.RANGED_GET if "range" in headers else Kind.GET
        case "GET" if query.keys() & {"list-type", "prefix", "uploads", "versions", "delimiter", "max-keys"}:
            return Kind.LIST
        case "PUT" if "x-amz-copy-source" in headers:
            return Kind.COPY
        case "PUT" if "partNumber" in query:
            return Kind.PART
        case "PUT" if key:
            return Kind.CONDITIONAL_PUT if headers.keys() & {"if-none-match", "if-match"} else Kind.PUT
        case "POST" if "uploads" in query:
            return Kind.BEGIN
        case "POST" if "uploadId" in query:
            return Kind.COMPLETE
        case "POST" if "delete" in query:
            return Kind.DELETE
        case "DELETE" if key:
            return Kind.ABORT if "uploadId" in query else Kind.DELETE
    return Kind.OTHER
