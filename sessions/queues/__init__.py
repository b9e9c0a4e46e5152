"""Where instruction documents wait: an SQS queue, or a directory."""
