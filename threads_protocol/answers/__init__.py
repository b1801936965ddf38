"""Types of the API's responses. Each response is declared once.

The coordinator sends dictionaries of these types without validating them. OpenAPI is generated from the types, and the
client validates responses against them.
"""
