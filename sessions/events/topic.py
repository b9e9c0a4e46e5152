"""Events to an SNS topic, in batches. The only place where the control plane publishes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from deltacompact.sinks.sns import TopicArn
from deltacompact.storage.s3_access import aws_client

BATCH_MAX = 10


class Topic:
    """One topic. Raises InputError if `arn` is not that of a topic. No request is made yet."""

    def __init__(self, arn: str) -> None:
        topic = TopicArn.of(arn)
        self.arn = topic.arn
        self._fifo = topic.fifo
        self._client = aws_client("sns", topic.region)

    def publish(self, group: str, events: Sequence[tuple[str, bytes]]) -> list[str]:
        """Publish at most BATCH_MAX events, as (name, bytes). Returns the names of those that the topic took.

        A FIFO topic keeps the order within `group`, and drops an event that is sent again within five minutes.
        """
        entries = [
            {
                "Id": str(number),
                "Message": data.decode(),
                "MessageAttributes": {
                    "type": {"DataType": "String", "StringValue": f"deltacompact.{name.partition('~')[0]}"}
                },
                **self._ordered(group, name),
            }
            for number, (name, data) in enumerate(events)
        ]
        answer = self._client.publish_batch(TopicArn=self.arn, PublishBatchRequestEntries=entries)
        return [events[int(taken["Id"])][0] for taken in answer.get("Successful", ())]

    def _ordered(self, group: str, name: str) -> dict[str, Any]:
        if not self._fifo:
            return {}
        return {
            "MessageGroupId": group,
            "MessageDeduplicationId": hashlib.sha256(f"{group}/{name}".encode()).hexdigest(),
        }
