"""A topic of SNS, and what a subscribed queue got of it."""

from __future__ import annotations

import json
import uuid
from typing import Any

import boto3
import pytest


@pytest.fixture
def topic(moto_endpoint):
    """The ARN of the topic, and a function that gives what came since it was last asked."""
    sns, sqs = boto3.client("sns"), boto3.client("sqs")
    name = f"events-{uuid.uuid4().hex[:8]}"
    arn = sns.create_topic(Name=name)["TopicArn"]
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    queue = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=queue, Attributes={"RawMessageDelivery": "true"})

    def received() -> list[dict[str, Any]]:
        found = []
        while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                found.append(json.loads(message["Body"]))
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return found

    return arn, received
