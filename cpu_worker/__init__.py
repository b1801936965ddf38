"""CPU worker. A parent process takes leases, sends heartbeats and commits results; child processes compute."""
