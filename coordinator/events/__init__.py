"""The stream of events and the rows that change with it."""
