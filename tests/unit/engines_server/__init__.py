"""The bundled engine server."""
