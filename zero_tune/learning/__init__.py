"""Targets, batches, losses, the learner."""
