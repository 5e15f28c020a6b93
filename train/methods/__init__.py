"""The one table of federated methods."""

from typing import Annotated, Any

from pydantic import Field

from train.methods.anchored import Anchored, AnchoredOptions
from train.methods.ataf import ATAF, ATAFOptions
from train.methods.contract import Method
from train.methods.coop import CoOp, CoOpOptions
from train.methods.fedit import FedIT, FedITOptions
from train.methods.pfedmoap import PFedMoAP, PFedMoAPOptions
from train.methods.pfedprompt import PFedPrompt, PFedPromptOptions
from train.methods.pilot import Pilot, PilotOptions
from train.methods.promptfl import PromptFL, PromptFLOptions
from train.methods.sap import SAP, SAPOptions

Options = Annotated[
    AnchoredOptions
    | ATAFOptions
    | CoOpOptions
    | FedITOptions
    | PFedMoAPOptions
    | PFedPromptOptions
    | PilotOptions
    | PromptFLOptions
    | SAPOptions,
    Field(discriminator="name"),
]
METHODS: dict[str, type[Method[Any]]] = {
    method.name: method for method in (Anchored, ATAF, CoOp, FedIT, PFedMoAP, PFedPrompt, Pilot, PromptFL, SAP)
}


def build_method(options: Options) -> Method[Any]:
    """The method of these options."""
    return METHODS[options.name](options)
