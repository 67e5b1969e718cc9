"""What everything else is written in: batches, parameters by name, likelihoods, keyed random numbers."""
