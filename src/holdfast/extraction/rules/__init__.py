"""Rules for Semgrep that come with Holdfast; mount your own for more."""
