"""Environments at the boundary: the only package that imports gymnasium or ale-py."""
