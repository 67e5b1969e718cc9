"""What is kept of old tasks."""
