"""Dispatchers that Step Functions keeps alive: they report to the state machine that launched their node."""
