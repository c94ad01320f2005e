"""Train the network that `write` uses again, some minutes of one core, and keep its weights."""

from layernorm.lab.experiments.handwriting.plan import EXPERIMENT
from layernorm.lab.experiments.handwriting.writing import WEIGHTS, save, trained

if __name__ == "__main__":
    save(trained(), EXPERIMENT.config("pen", "layer", 0).options)
    print(f"wrote {WEIGHTS}")
