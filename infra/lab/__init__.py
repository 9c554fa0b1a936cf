"""What measures and makes models; no service imports it."""
