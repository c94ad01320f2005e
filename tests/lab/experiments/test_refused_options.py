"""Options of their own that experiments refuse, with what would fit."""

import math
import re

import pytest

from layernorm.lab.experiments import get

LINES = {"lines": 16, "points": 30, "held_out": 6}
REFUSED = [  # experiment, arm, what is changed, the message
    ("mnist", "none", {"method": "instance"}, "method 'instance' needs positions"),
    ("mnist", "none", {"method": "batch", "batch_size": 1}, "batch_size of at least 2"),
    ("mnist", "none", {"logits": True}, "logits needs a normalized layer"),
    ("mnist", "none", {"method": "weight", "noise": 0.5}, "noise needs a normalized layer"),
    ("mnist", "none", {"method": "layer", "unbiased": True}, "unbiased is for method 'batch'"),
    ("mnist", "none", {"method": "batch", "affine": False}, "affine=false is for method 'layer'"),
    ("mnist", "layer", {"hidden": [9], "watch": True}, "two hidden layers, got 1"),
    ("mnist", "none", {"method": "layers"}, "unknown method 'layers'"),
    ("mnist", "none", {"noise": -0.5}, "noise: the value should be"),
    ("mnist", "none", {"activation": "gelu"}, "activation: the value should be"),
    ("convnet", "batch", {"over": "channels"}, "over='channels' chooses among the statistics of"),
    ("convnet", "layer", {"method": "weight"}, "method must be one of none, batch, layer, group,"),
    ("convnet", "group", {"groups": 3}, "groups must divide every number of channels, [8, 16, 16,"),
    ("convnet", "group-resnet", {"stages": [6]}, "groups must divide every number of channels, [6"),
    ("convnet", "layer", {"channels": []}, "channels must hold at least one number"),
    ("convnet", "layer", {"padding": "circle"}, "padding: the value should be 'zeros' or 'circula"),
    ("convnet", "layer", {"crop": -1}, "crop: the value should be greater than or equal to 0"),
    ("order_embeddings", "none", {"method": "batch"}, "must be one of none, layer, got 'batch'"),
    ("order_embeddings", "none", {"batch_size": 5000}, "at most the 3000 training scenes, got 500"),
    ("order_embeddings", "none", {"examples": 3001}, "examples must be at most the 3000 training"),
    ("order_embeddings", "none", {"batch_size": 1}, "should be greater than or equal to 2"),
    ("order_embeddings", "none", {"dataset": "flowers"}, "should be 'digits', 'mnist', 'coco', 'f"),
    ("attentive_reader", "none", {"method": "rms"}, "must be one of none, layer, batch, got 'rms'"),
    ("attentive_reader", "none", {"gain": 0.1}, "gain 0.1 is where norms start, and method 'none'"),
    ("attentive_reader", "layer", {"everywhere": True}, "everywhere is for method 'batch', got"),
    ("attentive_reader", "layer", {"statistics": "sequence"}, "statistics is for method 'batch',"),
    ("attentive_reader", "batch", {"batch_size": 4}, "must be at least min_samples (8), got 4"),
    ("attentive_reader", "none", {"sentences": 20}, "entities must be at least 21, a sentence can"),
    ("attentive_reader", "none", {"coreference": 1.0}, "coreference: the value should be less tha"),
    ("attentive_reader", "none", {"dropout": 1.0}, "dropout: the value should be less than 1"),
    ("skip_thoughts", "none", {"method": "rms"}, "method must be one of none, layer, got 'rms'"),
    ("skip_thoughts", "none", {"text": "bible"}, "text: the value should be 'manuals', 'novels' o"),
    ("skip_thoughts", "none", {"vocabulary": 3}, "vocabulary: the value should be greater than or"),
    ("skip_thoughts", "none", {"embedding_range": 0.0}, "embedding_range: the value should be gre"),
    ("draw", "none", {"method": "batch"}, "method must be one of none, layer, got 'batch'"),
    ("draw", "none", {"variant": "paper"}, "variant 'paper' is for method 'layer'"),
    ("draw", "rescaled", {"initial_std": 0.1}, "rescaled sets the scale of the weights"),
    ("draw", "layer", {"read": 1}, "read: the value should be greater than or equal to 2, got 1"),
    ("draw", "layer", {"dataset": "faces"}, "dataset: the value should be 'digits', 'mnist' or"),
    ("handwriting", "none", {"method": "batch"}, "method must be one of none, layer, got 'batch'"),
    ("handwriting", "none", {"points": 1}, "points: the value should be greater than or equal to"),
    ("handwriting", "layer", {"advance": 0.0}, "advance: the value should be greater than 0"),
    ("handwriting", "none", {**LINES, "batch_size": 20}, "batch_size 20 exceeds the 16 training l"),
    ("transformer", "layer", {"method": "batch"}, "must be one of none, layer, rms, dyt, derf"),
    ("transformer", "layer", {"hidden": 12, "heads": 5}, "heads must divide hidden (12), got 5"),
    ("transformer", "none", {"qk_norm": True}, "qk_norm is about norms, and method 'none' has non"),
    ("transformer", "none", {"placement": "post"}, "placement is about norms"),
    ("transformer", "post", {"layernorm_scaling": True}, "layernorm_scaling needs norms that come"),
    ("transformer", "layer", {"alpha": 0.3}, "alpha is for methods dyt and derf"),
    ("step_statistics", "none", {"method": "rms"}, "should be 'none', 'batch' or 'layer'"),
    ("step_statistics", "none", {"gain": 0.0}, "gain: the value should be greater than 0"),
    ("step_statistics", "none", {"method": "layer", "padded": True}, "padded is for method 'batch"),
    ("drift", "none-tanh", {"method": "layr"}, "did you mean"),
    ("drift", "none-tanh", {"order": "random"}, "order: the value should be 'shuffled' or 'sorted"),
    ("drift", "none-tanh", {"input_shift": math.inf}, "input_shift: the value should be a finite "),
    ("drift", "none-tanh", {"clip": 1.0}, "unknown option 'clip'"),
    ("adding", "none", {"variant": "papers"}, "variant: the value should be 'paper', 'joint'"),
    ("adding", "none", {"method": "batch"}, "method: the value should be 'none' or 'layer'"),
    ("adding", "none", {"steps": 0}, "steps: the value should be greater than or equal to 1"),
]


@pytest.mark.parametrize(("name", "arm", "change", "message"), REFUSED)
def test_options_that_do_not_fit_are_refused(name, arm, change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        get(name).config("book", arm, 0, **change)
