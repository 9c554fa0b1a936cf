"""Changes of the control plane's tables, one after the other."""
