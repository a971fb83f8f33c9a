"""Agents, collectors, evaluators."""
