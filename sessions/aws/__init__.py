"""Dispatchers that Step Functions keeps alive: what a dispatcher tells the state machine that launched its node."""
