"""What the records say at one moment, for everything that shows it: status, SLA report, metrics, page."""
