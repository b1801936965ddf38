"""Encodings of exact integers, JSON and binary columns of numbers."""
