"""Analysis and plots of recorded profiles."""
