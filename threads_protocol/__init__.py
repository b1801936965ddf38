"""Data formats that clients, coordinators and workers exchange. Imports no other package of the project."""
