"""Events of a job run to an SNS topic: start, rounds, end. Small messages, no row value and no key in them."""

from __future__ import annotations

import json
import time

from deltacompact.events import Event, EventSink, RoundCompleted, SessionFinished, SessionStarted
from deltacompact.s3_store import aws_client

_EVENT_VERSION = 1
_NAMES = {
    SessionStarted: "session_started",
    RoundCompleted: "round_completed",
    SessionFinished: "session_finished",
}


def sns_sink(topic_arn: str, desired_sla: int | None = None) -> EventSink:
    """A sink that publishes. The topic is reached at the first event; a failing one never fails a compaction."""
    clients: list[object] = []

    def publish(event: Event) -> None:
        if type(event) not in _NAMES:
            return
        if not clients:
            region = topic_arn.split(":")[3] if topic_arn.count(":") >= 5 else None
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
            return {"error": event.error, "live_rows": event.live}
        case _:
            return {}
