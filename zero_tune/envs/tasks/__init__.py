"""Small environments with known optima."""
