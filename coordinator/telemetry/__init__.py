"""History, spans of work, metrics, alerts."""
