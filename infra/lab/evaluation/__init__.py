"""What the models are worth: measured on recordings with known labels, by the service's own analysis."""
