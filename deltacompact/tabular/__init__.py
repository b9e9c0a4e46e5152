"""Rows in files of any format: reading, writing, schemas, and copying row groups without decoding them.

files             rows of a file in slices; start here                  formats       formats by file name extension
inspecting        what a file is, before it gets into a table           units         stripes, batches, whole texts
parquet_read      Parquet in batches that fit the memory                text_files    rows of any text file
prefetch          makes the next batch while this one is used           damage        errors name the file
schemas           one schema for many files                             column_types  wider types, stored types
conversion        casts that change no value
field_ids         matches columns by Iceberg's field ids                fills         values that a file lacks
writing           writes any format but JSON                            avro_files    change events in Avro
row_groups        tables become row groups                              row_bytes     the bytes of rows
far_values        values that a wider type does not hold                far_files     measures far values of old files
null_counts       rows without a key                                    whole_days    dates and times of day
inferred_numbers  keys of text files that doubles would merge           allocator     Arrow's and malloc's memory
inferred_keys     keys of text files that a parser would merge
row_group_copy    copies row groups as encoded bytes                    known_pages   row groups known to decode
stamps            has a file changed since it was appended?             key_ranges    key ranges from footers
export            writes a file that a user named                       fingerprint   a sum of rows that moving keeps
fingerprint_sql   the same sum in Spark and DuckDB                      key_values    key ranges of text files
loads             joins tables into batches of some bytes               orc_files     ORC, damaged files too
csv_files         CSV                                                   json_files    JSON lines
file_text         the text of a file, decompressed                      text_types    the types in which text is parsed
feather_files     Arrow files and streams, damaged ones too               int96         timestamps of 12 bytes
partition_texts   partition values beside the columns of files
beginnings        what a file is, where its name is wrong
published_types   the types of Iceberg and Delta Lake               coarse_times  seconds and milliseconds, for Spark
chunk_statistics  bounds of row groups, from footers
"""
