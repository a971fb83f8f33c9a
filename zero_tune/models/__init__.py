"""World models, and their inference-only form."""
