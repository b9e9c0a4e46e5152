"""Where rows lie among files: pure. How well readers can skip files by least and greatest values, and what would help.

boxes         the ranges of each file, as ranks             depth       how many files hold a value; what readers open
split_tree    of each row, to which file it goes            growing     such a tree, from a sample of rows
overlap       which files overlap, and a run chooses        prospect    what clustering would make of rows
advice        what is said of a table before it is clustered
document      the tree as JSON                              order       a column's values, as arrays to be compared
"""
