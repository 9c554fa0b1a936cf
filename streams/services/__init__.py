"""The services of a job, one file each."""
