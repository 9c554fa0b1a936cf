"""The dashboard: files for a browser, which uses the interface as any other client does."""
