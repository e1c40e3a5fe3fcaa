"""The dashboard: pages rendered here, readable without JavaScript, which only makes them live.

One file per group of pages in views/, each a `holdfast.pages.Pages` with its routes and its entries in the navigation; the list
is in views/__init__.py. frame.py is one request, install.py puts all of it into the served application.
"""
