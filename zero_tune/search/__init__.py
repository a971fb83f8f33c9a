"""Tree search over arrays: kernels, proposals, selection rules."""
