"""What was: history, spans of work, metrics, alerts."""
