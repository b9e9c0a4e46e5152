"""What users open: one facade for each kind of catalog, and of table.

opening                which kind a URI names
delta_streams          create and open tables           iceberg          the same
delta_stream_table     append, plan, compact, read, …   iceberg_table    plan, compact, maintain, history
                                                        iceberg_calls    what this program asks of the catalog
table_plan             a plan as a value
compact, changes       the functions of the package, for tables of either kind
mirror                 changes, appended to another table: mirror_sources, mirror_sinks, mirror_checks
"""
