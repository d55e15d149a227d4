"""Everything that writes a run directory: making, training, forking and recording a run."""
