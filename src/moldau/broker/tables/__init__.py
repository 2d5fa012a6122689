"""The broker settings of Kafka, in tables: used, not supported yet, without effect."""
