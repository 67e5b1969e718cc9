"""The gradients of single samples, layer by layer, as exact factors."""
