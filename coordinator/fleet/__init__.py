"""Fleet: workers, queues and autoscaling."""
