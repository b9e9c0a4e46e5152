"""What users open: one facade for each kind of table.

opening          which kind a URI names
delta_streams    create, append, read, publish      its room: delta_streams
iceberg          plan, rewrite, convert, upsert     its rooms: iceberg, and iceberg_modes
"""
