"""No models of Django's; Django tells only apps with this module that it has migrated."""
