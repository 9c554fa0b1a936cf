"""Requests and answers of the edge, whatever they are about."""
