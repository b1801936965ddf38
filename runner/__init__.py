"""Worker that runs programs. Each slot has a guard process, which stops everything that a program started."""
