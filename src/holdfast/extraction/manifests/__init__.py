"""Built-in readers of lockfiles and manifests: `read_tree` reads a folder of a repository that nobody trusts."""

from holdfast.extraction.manifests.source import ManifestProblem
from holdfast.extraction.manifests.tree import read_tree

__all__ = ["ManifestProblem", "read_tree"]
