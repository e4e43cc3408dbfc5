"""What a training loop of one's own calls: the same on one process, one site or many."""
