"""Kafka without Faust: its topics, and how records are written and read."""
