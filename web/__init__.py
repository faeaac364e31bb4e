"""The built-in page: three static files that the service hands out as they are, with no build step.

``index.html`` at ``/``, ``page.js`` and ``page.css`` beside it. They are written for a Content-Security-Policy
without inline script or style and with Trusted Types enforced.
"""
