"""Pure cores of a turn: no I/O, no clock."""
