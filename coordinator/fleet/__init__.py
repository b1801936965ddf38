"""Workers and the cluster at one moment."""
