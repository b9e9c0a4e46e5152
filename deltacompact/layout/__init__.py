"""Where rows lie among files: pure. How well readers can skip files by least and greatest values, and what would help.

boxes     the ranges of each file, as ranks             depth     how many files hold a value; what readers open
"""
