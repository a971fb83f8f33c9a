"""The driver loop; knows neither Ray nor Tune."""
