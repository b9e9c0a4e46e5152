"""What happens to job runs, as CloudEvents: each once in the record, and at least once on an SNS topic."""
