"""Families of metrics, and the text that Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


def exposition(collector: Collector) -> bytes:
    """The text that Prometheus scrapes."""
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry)


def gauge(name: str, text: str, labels: list[str], values: Mapping[Any, float]) -> Metric:
    family = GaugeMetricFamily(f"deltacompact_{name}", text, labels=labels)
    for label, value in values.items():
        family.add_metric(label, value)
    return family


def counter(name: str, text: str, value: float) -> Metric:
    return counters(name, text, [], {(): value})


def counters(name: str, text: str, labels: list[str], values: Mapping[Any, float]) -> Metric:
    family = CounterMetricFamily(f"deltacompact_{name}", text, labels=labels)
    for label, value in values.items():
        family.add_metric(label, value)
    return family
