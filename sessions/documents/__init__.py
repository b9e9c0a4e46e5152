"""Instruction documents: what a job run must do, which fields a document may have, and which catalogs it may name."""
