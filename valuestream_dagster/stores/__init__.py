"""Where bytes are: landing places that producers write to and the write-once store that is ours."""
