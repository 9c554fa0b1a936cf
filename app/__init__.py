"""The edge: everything that the service says over HTTP."""
