"""Kafka without Faust: topics, and the writing and reading of records."""
