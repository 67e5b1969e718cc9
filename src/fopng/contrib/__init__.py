"""Optional parts that register themselves and that nothing else imports."""
