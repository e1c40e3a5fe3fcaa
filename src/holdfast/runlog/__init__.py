"""The log of a run: where tasks put lines (desk), the thread that writes them (writer), how they become storable (text), and
what a task says by other means than `current().log` (capture, output)."""
