"""Training: schedules today; the loop is to come."""
