"""Claims about DRAW (section 6.4), which chapter 17 will decide."""

from layernorm.lab.claims import declare

declare(
    id="twice-as-fast/draw",
    statement="DRAW with layer normalization learns almost twice as fast as DRAW without.",
    kind="experiment",
    chapter="17",
)
declare(
    id="better-result/draw",
    statement="After 200 epochs DRAW with layer normalization has a better bound, by 0.27 nats.",
    kind="experiment",
    chapter="17",
)
