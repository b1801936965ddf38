"""Logs of programs: by byte range after a unit has ended, and live while it is running."""
