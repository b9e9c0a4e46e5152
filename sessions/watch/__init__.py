"""Triggers: policies on tables, and when they submit job runs."""
