"""An overview of all records at one moment, for status, SLA report, metrics and page."""
