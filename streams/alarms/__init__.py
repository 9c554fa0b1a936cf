"""The rules of alarms over live sessions, and the alarms that they make."""
