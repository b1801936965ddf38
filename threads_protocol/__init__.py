"""Data formats that clients, coordinators and workers exchange. This package imports no other package of the
project.
"""
