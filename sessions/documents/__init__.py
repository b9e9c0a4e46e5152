"""Instruction documents: what a job run is asked to do, what may be asked, and of which catalogs."""
