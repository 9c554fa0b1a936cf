"""The speaker interface: voices registered for an organization, and recognised again."""
