"""An SQS queue and its dead-letter queue."""

from __future__ import annotations

import json
import uuid

from sessions_clock import clock  # noqa: F401


def sqs_queues(receives_max=1000):
    """The URLs of a new queue and of its dead-letter queue."""
    import boto3

    client, name = boto3.client("sqs"), f"job-runs-{uuid.uuid4().hex[:8]}"
    dead = client.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": str(receives_max)})
    url = client.create_queue(QueueName=name, Attributes={"RedrivePolicy": policy})["QueueUrl"]
    return url, dead
