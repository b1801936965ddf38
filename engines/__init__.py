"""Engines: programs that runners keep up as replicas of services, one folder each."""
