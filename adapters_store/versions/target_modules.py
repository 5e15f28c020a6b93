"""Which modules an adapter is for: names, or one of the patterns that were published before names were.

No regular expression of an adapter is ever run: one of fifty characters can take a reader years.
"""

import string
from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import AfterValidator, Discriminator, Field, Tag

from adapters_store import limits
from adapters_store.errors import shown

NAME_CHARS = frozenset(string.ascii_letters + string.digits + "_.")
EVERY = "all-linear"  # PEFT's word for all linears of a model
# What train/ wrote as a pattern, up to its list of ends in brackets, and which path may stand before such an end.
PATTERNS: dict[str, Callable[[str], bool]] = {
    r".*language_model.*\.layers\.\d+\.(self_attn|mlp)\.(": lambda head: _in_layer(head),
    r".*language_model.*\.(": lambda head: "language_model" in head,
    r"visual\.transformer\.resblocks\.\d+\.(": lambda head: _in_block(head),
}


def check_names(names: Sequence[str]) -> list[str]:
    """The names themselves; ValueError with one sentence where one is no module's name."""
    for name in names:
        if not 0 < len(name) <= limits.MODULE_CHARS or not NAME_CHARS.issuperset(name):
            raise ValueError(
                f"target_modules holds {shown(name)}: a module's name is 1 to {limits.MODULE_CHARS} of a-z, A-Z, 0-9, "
                "_ and ."
            )
    return list(names)


def check_pattern(pattern: str) -> str:
    """The pattern itself; ValueError with one sentence where it is none of those published before names were."""
    if pattern != EVERY and _pattern(pattern) is None:
        raise ValueError(
            f"target_modules is {shown(pattern)}: a list of modules' names is needed; of patterns only those are "
            f"read that train/ once wrote: {', '.join(f'{form}…)' for form in PATTERNS)}"
        )
    return pattern


Pattern = Annotated[str, Field(max_length=limits.PATTERN_CHARS), AfterValidator(check_pattern), Tag("pattern")]
Names = Annotated[
    list[str], Field(min_length=1, max_length=limits.TARGET_MODULES), AfterValidator(check_names), Tag("names")
]
TargetModules = Annotated[
    Pattern | Names, Discriminator(lambda targets: "pattern" if isinstance(targets, str) else "names")
]


def selector(targets: str | Sequence[str]) -> Callable[[str], bool]:
    """PEFT's rule, in time linear in names and paths: whether a module's path is, or ends in, one of the names.

    A string selects as PEFT's regular expression of the same letters would; it must have been checked.
    """
    if targets == EVERY:
        return lambda module: True
    if isinstance(targets, str):
        found = _pattern(targets)
        assert found is not None, targets
        allowed, ends = found
        return lambda module: any(
            module.endswith("." + end) and allowed(module.removesuffix("." + end)) for end in ends
        )
    names = frozenset(targets)
    return lambda module: any(end in names for end in _ends(module))


def _pattern(pattern: str) -> tuple[Callable[[str], bool], tuple[str, ...]] | None:
    """The rule for what stands before the ends, and the ends; None where it has none of the known forms."""
    for form, allowed in PATTERNS.items():
        if pattern.startswith(form) and pattern.endswith(")"):
            ends = tuple(pattern.removeprefix(form).removesuffix(")").replace(r"\.", ".").split("|"))
            if all(end and NAME_CHARS.issuperset(end) for end in ends):
                return allowed, ends
    return None


def _ends(module: str) -> list[str]:
    """The path, and what is left of it after each of its dots."""
    parts = module.split(".")
    return [".".join(parts[i:]) for i in range(len(parts))]


def _in_layer(head: str) -> bool:
    above, _, part = head.rpartition(".")
    above, _, number = above.rpartition(".")
    return (
        part in ("self_attn", "mlp")
        and _is_number(number)
        and above.endswith(".layers")
        and "language_model" in above.removesuffix(".layers")
    )


def _in_block(head: str) -> bool:
    above, _, number = head.rpartition(".")
    return above == "visual.transformer.resblocks" and _is_number(number)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
