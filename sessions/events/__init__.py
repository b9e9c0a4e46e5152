"""Events of job runs, as CloudEvents: each is once in the record, and sent at least once to an SNS topic."""
