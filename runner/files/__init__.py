"""Folders and files of programs: workspaces, inputs, Python environments, the cache."""
