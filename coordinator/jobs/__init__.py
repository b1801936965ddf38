"""Jobs: submission, control, results and scheduling decisions."""
