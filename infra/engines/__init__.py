"""The bundled engine server: speech and sentences over public protocols, with no network and no GPU."""
