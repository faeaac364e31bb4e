"""The built-in page: static files that the service hands out as they are, with no build step.

``index.html`` at ``/``, the style and the modules beside it; ``page.js`` is where they begin. They are written for a
Content-Security-Policy without inline script or style and with Trusted Types enforced.
"""
