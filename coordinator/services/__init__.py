"""Services: replicas of engines that stay up, and the gateway by which they are asked."""
