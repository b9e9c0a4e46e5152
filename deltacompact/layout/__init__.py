"""Where rows lie among files: pure. How well readers can skip files by least and greatest values, and what would help.

boxes         the ranges of each file, as ranks             depth       how many files hold a value; what readers open
cluster_by    the columns that readers ask for              prospect    what clustering would make of rows
overlap       which files overlap, and a run chooses        advice      what is said of a table before it is clustered
split_tree    of each row, to which file it goes            growing     such a tree, from a sample of rows
document      the tree as JSON                              order       a column's values, as arrays to be compared
sort_order    an order as people write it               ranges      of each row, to which range of an order it goes
curves        Hilbert's and Z-order, through ranks      cutting_ranges    such ranges, from a sample of rows
reads         which columns are asked for               spark_logs    such reads, by event logs of Spark
scan_reports  such reads, as catalogs are told of them  told_reads    the reads of one table, by all of these
log_lines     the lines of logs, plain or compressed    heat          what is left of reads
spread        some of many, far from each other         simulation    reads replayed against policies
skipping      which files may match a filter          quoting       names with commas and stars
value_ranges  least and greatest values of columns    extents       how far rows reach that are written together
"""
