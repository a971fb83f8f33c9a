"""Pure functions: supports, distributions, schedules, shape checks, row generators."""
