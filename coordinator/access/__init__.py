"""Who is let in: logging in with a browser, API tokens."""
