"""On a GPU: updates that graphs replay have the losses of those that are launched one by one."""

import pytest
import torch

from layernorm.lab.gpu.training import ORDER

UPDATES = 12


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("arm", ["none", "layer"])
@pytest.mark.parametrize("name", ORDER)
def test_graphs_have_the_losses_of_single_launches(name, arm):
    pytest.importorskip("pydantic", reason="experiments need the extra `experiments`")
    from layernorm.lab.experiments import checkpoint, get, run
    from layernorm.lab.experiments.data_parallel import Workers

    gpu, experiment = torch.device("cuda"), get(name)
    arm = arm if arm in experiment.arms else next(iter(experiment.arms))
    config = experiment.config("book", arm, 0, updates=UPDATES, evaluations=1)
    losses = []
    for kind in (experiment.trainer or run.Trainer, run.trainer_of(experiment, gpu, Workers())):
        with checkpoint.seeded(0, gpu), run.deterministic(gpu):
            try:
                trainer = kind(experiment, config, gpu)
            except (FileNotFoundError, ModuleNotFoundError) as error:
                pytest.skip(f"no data here: {error}")
            for step in range(1, UPDATES + 1):
                trainer.update(step)
            losses.append(trainer.look())
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
