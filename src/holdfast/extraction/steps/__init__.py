"""The steps of an extraction, one module for each."""
