"""What many results say together."""
