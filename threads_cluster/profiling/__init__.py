"""Analysis of recorded profiles, and their plots."""
