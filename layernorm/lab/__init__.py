"""The book's laboratory: data, experiments, records, benchmarks, claims. Nothing of the library
imports it."""
