"""Commands, the service, the database, engines and models: all that knows this machine."""
