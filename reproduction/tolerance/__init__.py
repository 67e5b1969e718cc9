"""Asked and delivered: how much old tasks lose on eight streams, beside how much was allowed."""
