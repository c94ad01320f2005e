"""Layer normalization (Ba, Kiros, Hinton 2016): definitions, modules, experiments, benchmarks."""
