"""The forms in which the client, the coordinators and the workers exchange data. It imports no other package."""
