"""Train two recorded runs again, some minutes of one core, and keep what they generate."""

from layernorm.lab.experiments.draw.plan import EXPERIMENT
from layernorm.lab.experiments.draw.samples import ARMS, FILE, generate, recorded, save

if __name__ == "__main__":
    made = {}
    for arm in ARMS:
        run = recorded(arm)
        rate = run.config["options"]["learning_rate"]
        config = EXPERIMENT.config("standard", arm, run.config["seed"], learning_rate=rate)
        made[arm] = generate(config)
        there = run.result["final"]["test_bound"]
        print(f"{arm}: {made[arm].bound:.2f} nats, in the record {there:.2f}")
    save(made)
    print(f"wrote {FILE}")
