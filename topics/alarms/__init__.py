"""Rules of alarms, the alarms that they make, and where alarms are sent."""
