"""What keeps one tenant from hurting others. Limits on running jobs live in the claim; these are asked before the work."""
