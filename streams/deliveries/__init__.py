"""The ways out of alarms: webhooks, ntfy and MQTT."""
