"""The HTTP routes: a request stops here; below them there are typed values only."""
