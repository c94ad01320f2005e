"""The measurements of chapters and claims: activations, weights, recurrences, Fisher matrices."""
