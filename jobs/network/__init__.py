"""Network addresses of Redis and of servers, and tunnels between runners and coordinators."""
