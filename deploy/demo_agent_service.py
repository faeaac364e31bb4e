"""The demo agent in a container of its own: it listens on every address of that container, and never on a host.

``DEMO_AGENT_TOKEN`` is the bearer that clients must show; the workspaces are mounted at ``/workspace``.
"""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

from demo_agent import Gateway, serve

PORT = 18790  # pico's own
WORKSPACES = Path("/workspace")
WORD_DELAY = 0.02  # seconds

if __name__ == "__main__":
    gateway = Gateway(WORKSPACES, os.environ["DEMO_AGENT_TOKEN"], None, WORD_DELAY)
    asyncio.run(serve(gateway, socket.create_server(("", PORT)), with_parent=False))
