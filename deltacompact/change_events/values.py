"""The values of an operation column that most writers use: Debezium, AWS DMS, Kafka Connect, SQL MERGE logs."""

UPSERT_VALUES = (*"IUCRiucr", "insert", "update", "upsert", "INSERT", "UPDATE", "UPSERT")
DELETE_VALUES = ("D", "d", "delete", "DELETE")
