"""Authentication and authorization: browser sessions, API tokens and scopes."""
