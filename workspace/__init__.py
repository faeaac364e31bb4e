"""One confined tree: whoever holds a handle may name things below it, and nothing else."""
