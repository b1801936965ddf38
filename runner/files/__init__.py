"""Folders and files of programs: working directories, workspaces, inputs, Python environments and the file cache."""
