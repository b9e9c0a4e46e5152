"""How rows lie in files: pure. How many files readers can skip by least and greatest values, and what would help.

boxes         the ranges of each file, as ranks             depth       how many files hold a value; what readers open
cluster_by    the option cluster-by, parsed                 prospect    the files that clustering would make
overlap       which files overlap, and which a run writes   advice      the answer of `advise`
split_tree    sends each row to a file                      growing     grows a split tree from a sample of rows
document      the tree as JSON                              order       a column's values as arrays to compare
sort_order    a sort order in text, parsed              ranges      sends each row to a range of a sort order
curves        Hilbert's curve and Z-order               cutting_ranges    cuts such ranges on a sample of rows
reads         a read, and the columns it asks for       spark_logs    reads from event logs of Spark
scan_reports  reads from scan reports                   collected_reads    reads of a table, from logs and reports
log_lines     the lines of logs, plain or compressed    heat          how often each column is asked for
spread        a sample of places, far from each other   simulation    replays reads against policies
skipping      which files may match a filter            quoting       column names with commas and stars
value_ranges  least and greatest values of columns      extents       how far the rows of a group reach
stored_values numbers, texts and bytes as JSON values
"""
