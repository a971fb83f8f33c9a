"""Search spaces, one module per policy family."""
