"""The vocabulary that every room uses, with errors, settings, limits, events and wording."""
