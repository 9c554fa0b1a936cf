"""Kafka without Faust: topics, writers, readers."""
