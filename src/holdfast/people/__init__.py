"""Who may call: keys, members, projects and the sessions of browsers. What each may do is decided in web/access.py."""
