"""Requests and answers of the edge, independent of their subject."""
