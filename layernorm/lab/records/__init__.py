"""Records of runs: save, load, publish, and whether they are stale. ::

    record = records.new(config, result, timing, depends_on=[train, Model])
    records.save(record)                  # runs/<experiment>/<profile>/<key>.json
    records.publish(["runs"])             # into the package, one file per sweep
    records.load("digits", "book")        # both, as one tidy table

`records.path(config).exists()` tells whether a run is done already.
"""

from layernorm.lab.records.environment import environment
from layernorm.lab.records.files import new, path, read, save
from layernorm.lab.records.published import LIMIT, publish
from layernorm.lab.records.record import Record, RecordError, key
from layernorm.lab.records.staleness import changed, digest, stale
from layernorm.lab.records.table import load, only_own, published_only, runs, staleness_banner, tidy

__all__ = [
    "LIMIT",
    "Record",
    "RecordError",
    "changed",
    "digest",
    "environment",
    "key",
    "load",
    "new",
    "only_own",
    "path",
    "publish",
    "published_only",
    "read",
    "runs",
    "save",
    "stale",
    "staleness_banner",
    "tidy",
]
