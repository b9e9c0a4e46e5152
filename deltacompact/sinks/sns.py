"""Events of a job run to an SNS topic: start, rounds, end. Messages are small and hold no key or row value.

An error's text may quote a value ("'John' is not an int64"), so the topic gets only the error's class and the files and
columns that it names: "SchemaError: orders/data/5c5c….csv, column 'total'".
"""

from __future__ import annotations

import json
import re
import time

from deltacompact.base.errors import InputError
from deltacompact.base.events import Event, EventSink, RoundCompleted, SessionFinished, SessionStarted
from deltacompact.storage.s3 import aws_client

_EVENT_VERSION = 1
_ARN = re.compile(r"arn:[a-z-]+:sns:(?P<region>[a-z0-9-]+):\d{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?")
_NAMES = {
    SessionStarted: "session_started",
    RoundCompleted: "round_completed",
    SessionFinished: "session_finished",
}


def sns_sink(topic_arn: str, desired_sla: int | None = None) -> EventSink:
    """A sink that sends events to a topic. It connects at the first event; if it fails, the compaction goes on.

    Raises InputError where `topic_arn` is not the ARN of a topic.
    """
    known = _ARN.fullmatch(topic_arn) if isinstance(topic_arn, str) else None
    if known is None:
        raise InputError(f"SNS topic {topic_arn!r} is not an ARN like arn:aws:sns:eu-west-1:123456789012:events")
    region = known["region"]
    clients: list[object] = []

    def publish(event: Event) -> None:
        if type(event) not in _NAMES:
            return
        if not clients:
            clients.append(aws_client("sns", region))
        message = {
            "version": _EVENT_VERSION,
            "event": _NAMES[type(event)],
            "time_s": round(time.time(), 3),
            "table_id": event.table_id,
            "partition": dict(event.partition.values),
            "desired_sla_s": desired_sla,
            **_details(event),
        }
        clients[0].publish(TopicArn=topic_arn, Subject=message["event"], Message=json.dumps(message))  # type: ignore[attr-defined]

    return publish


def _details(event: Event) -> dict[str, object]:
    match event:
        case SessionStarted():
            return {
                "session_id": event.session_id,
                "rounds": event.rounds,
                "delta_rows": event.delta_rows,
                "why": event.why,
            }
        case RoundCompleted():
            return {"round": event.round, "rounds": event.rounds, "live_rows": event.rows}
        case SessionFinished():
            files = [{"action": action, "reason": reason, "files": count} for action, reason, count in event.files]
            return {"error": event.error_named, "live_rows": event.live, "files": files}
        case _:
            return {}
