"""What things cost: a harness that times only what is right, and one file per thing measured.

    from layernorm.lab.benchmarks import norms
    norms.quick()                                  # a table

A benchmark is declared as a `harness.Benchmark`; `harness.measure` checks its implementations
against the oracle, times them in turns and sets them against a measured copy.
"""
