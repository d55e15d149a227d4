"""The kinds of `Source`: a run directory, given arrays, a shadow model in the target's place."""
