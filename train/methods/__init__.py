"""The one table of federated methods."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from train.methods.base import Method
from train.methods.fedit import FedIT, FedITOptions
from train.methods.promptfl import PromptFL, PromptFLOptions

Options = Annotated[FedITOptions | PromptFLOptions, Field(discriminator="name")]
METHODS: dict[str, Callable[[Any], Method[Any]]] = {method.name: method for method in (FedIT, PromptFL)}


def build_method(options: Options) -> Method[Any]:
    """The method of these options."""
    return METHODS[options.name](options)
