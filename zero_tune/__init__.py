"""Ray Tune plugin that trains MuZero-family and UniZero agents."""
