"""An SQS queue and its dead-letter queue."""

from __future__ import annotations

import json
import uuid

from sessions_clock import clock  # noqa: F401


def sqs_queue(is_fifo=False, **attributes):
    """The URL of a new queue."""
    import boto3

    name, fifo = f"job-runs-{uuid.uuid4().hex[:8]}", {"FifoQueue": "true"} if is_fifo else {}
    made = boto3.client("sqs").create_queue(QueueName=name + ".fifo" * is_fifo, Attributes={**fifo, **attributes})
    return made["QueueUrl"]


def sqs_queues(receives_max=1000, is_fifo=False):
    """The URLs of a new queue and of its dead-letter queue."""
    import boto3

    client, dead = boto3.client("sqs"), sqs_queue(is_fifo)
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": str(receives_max)})
    return sqs_queue(is_fifo, RedrivePolicy=policy), dead
