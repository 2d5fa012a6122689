"""The broker settings of Kafka, in tables by what becomes of them here."""
