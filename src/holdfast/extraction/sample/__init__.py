"""Two small projects with known holes, and the advisories that tell of them, to see an extraction work without a network."""
