"""`earshot agent`: streams named sources to the service. A client of it, which uses no part of the service."""
