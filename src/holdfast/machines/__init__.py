"""Machines that are there while there is work: providers, and the decision how many are needed."""
