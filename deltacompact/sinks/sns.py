"""Events of a job run to an SNS topic: start, rounds, end. Messages are small and hold no key or row value.

An error's text may quote a value ("'John' is not an int64"), so the topic gets only the error's class and the files and
columns that it names: "SchemaError: orders/data/5c5c….csv, column 'total'".
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass

from deltacompact.base.errors import InputError
from deltacompact.base.events import ColumnsAdded, Event, EventSink, RoundCompleted, SessionFinished, SessionStarted
from deltacompact.storage.s3_access import aws_client

_EVENT_VERSION = 1
TOPIC_ARN = r"arn:[a-z-]+:sns:([a-z0-9-]+):[0-9]{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?"
_SHOWN_CHARACTERS_MAX = 60
_NAMES = {
    SessionStarted: "session_started",
    ColumnsAdded: "columns_added",
    RoundCompleted: "round_completed",
    SessionFinished: "session_finished",
}


@dataclass(frozen=True, slots=True)
class TopicArn:
    """The name of an SNS topic, and what it says of the topic."""

    arn: str
    region: str
    fifo: bool

    @classmethod
    def of(cls, arn: str) -> TopicArn:
        """Raises InputError where `arn` is not the ARN of a topic."""
        parts = re.fullmatch(TOPIC_ARN, arn) if isinstance(arn, str) else None
        if parts is None:
            shown = arn[:_SHOWN_CHARACTERS_MAX] if isinstance(arn, str) else arn
            raise InputError(f"SNS topic {shown!a} is not an ARN like arn:aws:sns:eu-west-1:123456789012:events")
        return cls(arn, parts[1], parts[2] is not None)


def sns_sink(topic_arn: str, desired_sla: int | None) -> EventSink:
    """A sink that sends events to a topic. It connects at the first event; if it fails, the compaction goes on.

    Raises InputError where `topic_arn` is not the ARN of a topic.
    """
    topic = TopicArn.of(topic_arn)
    clients: list[object] = []

    def publish(event: Event) -> None:
        if type(event) not in _NAMES:
            return
        if not clients:
            clients.append(aws_client("sns", topic.region))
        message = {
            "version": _EVENT_VERSION,
            "event": _NAMES[type(event)],
            "time_s": round(time.time(), 3),
            "table_id": event.table_id,
            "partition": dict(event.partition.values),
            "desired_sla_s": desired_sla,
            **_details(event),
        }
        clients[0].publish(TopicArn=topic.arn, Subject=message["event"], Message=json.dumps(message))  # type: ignore[attr-defined]

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
        case ColumnsAdded():
            return {"columns": event.columns}
        case RoundCompleted():
            return {"round": event.round, "rounds": event.rounds, "live_rows": event.rows}
        case SessionFinished():
            files = [{"action": action, "reason": reason, "files": count} for action, reason, count in event.files]
            return {"error": event.error_named, "live_rows": event.live, "files": files}
        case _:
            return {}
