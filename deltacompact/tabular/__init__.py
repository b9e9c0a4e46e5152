"""Rows in files of any format: reading, writing, schemas, and copying row groups without decoding them.

files             schema, row count and rows of a file; start here      formats       by file name extension
parquet_read      in batches that fit the memory                        text_files    CSV and JSON lines
prefetch          the next batch while this one is used                 damage        errors name the file
schemas           one schema for many files                             conversion    casts that change no value
field_ids         columns by Iceberg's ids                              fills         values that a file lacks
writing           any format but JSON                                   avro_files    change events are read from them
row_groups        tables become row groups                              row_bytes     how large they are
far_values        values that a wider type does not hold                far_files     of files that nobody measured
null_counts       rows without a key                                    whole_days    dates have no time of day
inferred_numbers  keys of text files that doubles would make one        allocator     Arrow's memory
row_group_copy    whole row groups as encoded bytes                     known_pages   those that are known to decode
stamps            has a file changed since it was appended?     key_ranges    of row groups, by their footers
export            one file that a user named                   fingerprint   a sum of rows that moving keeps
fingerprint_sql   the same in Spark and DuckDB                 key_values    ranges of keys in text files
loads             rows, as many at a time as fit the memory
"""
