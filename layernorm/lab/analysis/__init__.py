"""What chapters measure of networks: activations, recurrences, Fisher matrices, statistics."""
