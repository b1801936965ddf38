"""Event stream of the cluster, and live records of workers, queues and alerts."""
