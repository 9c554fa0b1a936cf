"""Connections of clients: HTTP/1, sockets, tunnels to other nodes, and their bounds."""
