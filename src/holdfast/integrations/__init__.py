"""Holdfast inside the frameworks that people have: each module is imported only by whoever uses its framework."""
