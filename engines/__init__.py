"""Engines: server programs that runners keep running as the replicas of services. Each engine has a folder."""
