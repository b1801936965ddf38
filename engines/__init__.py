"""Engines: server programs that runners keep running as replicas of services. Each engine has one folder."""
