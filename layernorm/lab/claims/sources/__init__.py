"""Which claims decide each statement of the paper and of its five summaries.

Every source is a numbered list of what it says, in our words. A statement names the claims that
decide it, or the reason why nothing can check it. `problems` compares the lists with the registry::

    from layernorm.lab.claims import sources

    sources.SOURCES["summary B"].statements[0].claims
    sources.problems()  # [] if every statement is mapped and said_by agrees
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from layernorm.lab import claims
from layernorm.lab.claims.sources import paper, reported, summaries_ab, summaries_cd, summary_e
from layernorm.lab.claims.sources.statement import Source, Statement

__all__ = ["SOURCES", "Source", "Statement", "problems", "reported"]

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        paper.PAPER,
        summaries_ab.A,
        summaries_ab.B,
        summaries_cd.C,
        summaries_cd.D,
        summary_e.SUMMARY_E,
    )
}


def problems(
    sources: Iterable[Source] | None = None, registry: Sequence[claims.Claim] | None = None
) -> list[str]:
    """What is wrong with the mapping, one sentence each; nothing, if it is complete.

    A source's statements are numbered without a gap up to its count; each names registered claims
    of which the source is a `said_by`; and each claim that names a source is named by it. The
    sentences of summary E are the paper's own, so that it also says what the paper says; a
    statement marked `elsewhere` is nobody's in particular.

    Args:
        sources: all of `SOURCES` if None.
        registry: all registered claims if None.
    """
    sources = list(SOURCES.values()) if sources is None else list(sources)
    known = {claim.id: claim for claim in (claims.all() if registry is None else registry)}
    found = []
    for source in sources:
        numbers = [statement.number for statement in source.statements]
        missing = sorted(set(range(1, source.count + 1)) - set(numbers))
        if missing or len(numbers) != source.count:
            found.append(
                f"{source.name} has {source.count} statements; {len(numbers)} are listed, "
                f"without the numbers {missing}"
            )
        for statement in source.statements:
            for id in statement.claims:
                if id not in known:
                    found.append(f"{source.name}, {statement.number}: there is no claim {id!r}")
                elif not statement.elsewhere and not _names(known[id], source.name):
                    found.append(
                        f"{source.name}, {statement.number}: claim {id!r} is not said by it"
                    )
        mapped = {id for statement in source.statements for id in statement.claims}
        found += [
            f"{source.name} says {claim.id!r}, but none of its statements names that claim"
            for claim in known.values()
            if any(said.startswith(source.name) for said in claim.said_by)
            and claim.id not in mapped
        ]
    return found


def _names(claim: claims.Claim, source: str) -> bool:
    names = ("summary E", "paper") if source == "summary E" else (source,)
    return any(said.startswith(names) for said in claim.said_by)
