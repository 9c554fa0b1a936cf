"""Rules of alarms, where alarms are sent, and the alarms of a project."""
