"""`python -m layernorm.lab.experiments.studies NAME`: tune, run and publish one study.

Besides, every arm is shown to learn: it is trained on 32 examples alone (profile `overfit`).
"""

from __future__ import annotations

import sys

from tqdm import tqdm

from layernorm.lab import records
from layernorm.lab.experiments.studies.planning import (
    TUNING_SEED,
    Plan,
    best_rate,
    plan,
    plans,
    run,
    train,
    tune,
)


def main(study: Plan) -> None:
    rates, tuning = {}, []
    for arm in tqdm([a for a in study.arms if a not in study.rate_of], desc="tuning"):
        runs = tune(study, arm)
        rates[arm], tuning = best_rate(runs, study.tuned_on), [*tuning, *runs]
    rates |= {arm: rates[other] for arm, other in study.rate_of.items()}
    results = run(study, rates)
    for arm, options in study.arms.items():
        few = {"examples": 32, "batch_size": min(32, options.get("batch_size", 32))}
        results.append(train(study.config(arm, TUNING_SEED, rates[arm], **few), "overfit"))
    paths = [records.save(record) for record in [*tuning, *results]]
    for path in records.publish(paths, replace=True):  # all of the study was run anew
        print(path)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in plans():
        sys.exit(
            "usage: python -m layernorm.lab.experiments.studies NAME, "
            f"with NAME one of {sorted(plans())}"
        )
    main(plan(sys.argv[1]))
