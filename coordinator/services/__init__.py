"""Services: engines whose replicas the cluster keeps running, and the gateway that forwards requests to them."""
