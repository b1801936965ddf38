"""Logs of programs: by range once a unit has ended, and live, line by line, while it runs."""
