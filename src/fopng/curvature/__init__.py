"""Fisher matrices: estimated in one place, represented as operators in another."""
