"""The store and the index. Knows no HTTP server and no workspace."""
