"""Events to an SNS topic, in batches. The only place where the control plane publishes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from deltacompact.base.errors import InputError
from deltacompact.storage.s3 import aws_client

BATCH_MAX = 10
_ARN = re.compile(r"arn:[a-z-]+:sns:(?P<region>[a-z0-9-]+):\d{12}:[A-Za-z0-9_-]{1,256}(?P<fifo>\.fifo)?")


class Topic:
    """One topic. Raises InputError for what is no topic's ARN; nothing is asked of it yet."""

    def __init__(self, arn: str) -> None:
        known = _ARN.fullmatch(arn)
        if known is None:
            raise InputError(
                f"SNS topic {arn[:60]!r} is no ARN: it looks like arn:aws:sns:eu-west-1:123456789012:events"
            )
        self.arn = arn
        self._fifo = known["fifo"] is not None
        self._client = aws_client("sns", known["region"])

    def publish(self, group: str, events: Sequence[tuple[str, bytes]]) -> list[str]:
        """Publish events by name, at most BATCH_MAX; the names of those that the topic took.

        `group` keeps the order within it on a FIFO topic, which drops what it was sent twice within five minutes.
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
