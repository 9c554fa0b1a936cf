"""The OWASP API Security Top 10 of 2023 against a running service, a file per risk."""
