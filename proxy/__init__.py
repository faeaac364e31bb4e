"""The edge of Isthmus: HTTP, streams, agents. Everything is wired here."""
