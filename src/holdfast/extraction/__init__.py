"""The extraction application: repository in; dependencies, vulnerabilities, findings and secrets out."""
