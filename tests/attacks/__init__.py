"""Programs that attack a running service, and tests that do so briefly."""
