"""Claims that chapter 07 decides about the scale of the first weights."""

from __future__ import annotations

from layernorm.lab.analysis import scale
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.chapter_07_length import MLP, without
from layernorm.lab.claims.checks import conditional, draw, largest, less, seeds, worst


@claim(
    id="initial-function-ignores-scale",
    statement="At the start, a layer-normalized network computes the same whatever the scale of "
    "its hidden weights.",
    rule="five nets of 8-16-16-3 units, hidden weights times c: held if for c = 0.0001 to 1000 the "
    "logits agree to 1e-10 with eps = 1e-5 and with c = -1; conditional if with eps = 0 and c > 0 "
    "only; else refuted",
    sabotage=(MLP, without),
)
def initial_function_ignores_scale() -> Finding:
    exact = with_eps = turned = 0.0
    for seed in seeds(5):
        x, found = draw(50, 8), []
        for eps in (0.0, 1e-5):
            base = scale.network(eps=eps, seed=seed)(x)
            others = (scale.network(c, eps=eps, seed=seed)(x) for c in (1e-4, 0.1, 10.0, 1000.0))
            found.append(largest(*(other - base for other in others)))
        exact, with_eps = worst(exact, found[0]), worst(with_eps, found[1])
        net = scale.network(seed=seed)
        net[0][0].weight.data.neg_()
        turned = worst(turned, largest(net(x) - scale.network(seed=seed)(x)))
    return conditional(
        exact < 1e-10,
        worst(with_eps, turned) < 1e-10,
        "eps = 0 and the factor is positive",
        f"For c from 0.0001 to 1000 the logits agree to {less(exact, 1e-10)} with eps = 0, but "
        f"differ by up to {with_eps:.1f} with eps = 1e-5, and by up to {turned:.1f} for c = -1.",
        exact=exact,
        eps=with_eps,
        turned=turned,
    )


@claim(
    id="initial-scale-is-a-learning-rate",
    statement="A layer-normalized network whose hidden weights start c times larger learns as if "
    "their learning rate were c² times smaller (SGD) or c times smaller (Adam).",
    rule="three networks, each with data of its own: refuted unless after 30 updates from c = 0.1 "
    "and c = 10, eps = 0, the logits agree with those from c = 1 to 1e-8 where the rate of the "
    "hidden weights is multiplied by c² (SGD) or c (Adam), and differ by more than 0.01 at the "
    "same rate; held if the former with eps = 1e-5, too; else conditional",
    sabotage=(MLP, without),
)
def initial_scale_is_a_learning_rate() -> Finding:
    matched, with_eps, same = 0.0, 0.0, []
    for seed in seeds(3):
        for optimizer, power, rate in (("sgd", 2, 0.1), ("adam", 1, 0.01)):

            def logits(c: float, factor: float, eps=0.0, kind=optimizer, rate=rate, seed=seed):
                net = scale.network(c, eps=eps, seed=seed)
                return scale.learn(net, kind, rate * factor, rate, seed=seed)

            plain, plain_eps = logits(1.0, 1.0), logits(1.0, 1.0, 1e-5)
            for c in (0.1, 10.0):
                matched = worst(matched, largest(logits(c, c**power) - plain))
                with_eps = worst(with_eps, largest(logits(c, c**power, 1e-5) - plain_eps))
                same.append(largest(logits(c, 1.0) - plain))
    return conditional(
        matched < 1e-8 and min(same) > 0.01,
        with_eps < 1e-8,
        "eps = 0",
        f"After 30 updates the logits agree to {less(matched, 1e-8)} at the matched rate with "
        f"eps = 0 (with eps = 1e-5 to {less(with_eps, 1e-8)}), and differ by {min(same):.1f} or "
        "more at the same rate.",
        matched=matched,
        with_eps=with_eps,
        same=min(same),
    )
