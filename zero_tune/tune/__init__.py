"""The Tune face: the only package that imports Ray."""
