"""Answers of the API, each declared once.

The coordinator sends dictionaries of these types without checking them. OpenAPI is generated from them. The client
checks what it receives by them.
"""
