"""P7's job as a task of Celery, Dramatiq and Huey."""
