"""What a job can be asked for, one file a service."""
