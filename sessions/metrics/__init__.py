"""Metrics for Prometheus, computed from the records at each scrape, so that no restart loses a count."""
