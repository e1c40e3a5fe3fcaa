"""Signed messages over HTTP: to the addresses that a tenant names, and from services that call us."""
