"""The edge: the HTTP interface of the service."""
