"""What Holdfast costs and how fast it is, measured beside the raw floor: `python -m bench`."""
