"""All that needs a GPU, on a machine that is had for half an hour: `make bench-gpu`,
`make experiments-gpu`."""
