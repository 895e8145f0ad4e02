"""Measurements of this library against others, on the machine at hand."""

from candid.bench.speed import Case, Measurement, default_cases, measure

#: Name of each benchmark → what it measures.
BENCHMARKS = {"speed": "time of a training step and of predicting 2,000 rows, beside GPyTorch and the machine's limit"}

__all__ = ["BENCHMARKS", "Case", "Measurement", "default_cases", "measure"]
