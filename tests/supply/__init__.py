"""Third-party software that we install: its sources, licences and known vulnerabilities."""
