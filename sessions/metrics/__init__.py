"""Metrics for Prometheus, computed from the records at each scrape: a restart loses no more than old counts."""
