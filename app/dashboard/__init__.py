"""The dashboard: files for a browser, which uses the interface like any other client."""
