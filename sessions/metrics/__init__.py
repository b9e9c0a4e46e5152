"""Metrics for Prometheus, made of the records whenever they are asked for, so that no restart loses a count."""
