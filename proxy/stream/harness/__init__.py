"""One reader for each harness protocol: bytes in, typed events out."""
