"""Generated load: simulated workers, listeners, and stand-ins for engines."""
