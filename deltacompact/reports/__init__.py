"""Tables and plans as documents and in words: what `show` and `plan` print, and `str(table)`.

table_report  the streams of tables, and their versions        plan_report   what a compaction would do
iceberg_table what a branch of an Iceberg table is made of     decisions     what becomes of each file, and why
sizes         what lies in partitions, and waits               scale         how much of many partitions is said
words         words and shapes that several share              advice        what clustering would bring
iceberg_catalog  the tables of an Iceberg catalog
health        file sizes, dead rows, backlog                   plots         pictures of all these
"""
