"""Linked-row replay; knows no model."""
