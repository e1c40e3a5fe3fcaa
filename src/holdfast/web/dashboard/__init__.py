"""The dashboard: pages for people, rendered on the server, below the same address as the API."""
