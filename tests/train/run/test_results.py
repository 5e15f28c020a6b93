"""What results.json makes of the clients' scores."""

from rich.console import Console

from train.federation.backend import Ending
from train.federation.evaluate import Scores
from train.methods.contract import ClientInfo
from train.models.interfaces import Artefact
from train.run.results import summarise, table

ARTEFACT = Artefact("personal", {}, "")
RUN = {"method": "m", "family": "mllm", "seed": 0, "rounds": 1}
INFOS = [ClientInfo("ann", 8), ClientInfo("bob", 4)]
NOTHING = {"zero_shot": None, "local": None, "global": None, "personal": None}


def of(task: str, mean: float, **metrics: float) -> Scores:
    return Scores(mean, {task: mean}, {f"{task}.{name}": value for name, value in metrics.items()})


ENDINGS = {
    "ann": Ending(
        ARTEFACT,
        {
            "personal": of("ground", 0.5, iou=0.4),
            "global": of("ground", 0.25, iou=0.2),
            "unseen.style.personal": of("ground", 0.125),
            "unseen.style.global": of("ground", 0.375),
        },
    ),
    "bob": Ending(ARTEFACT, {"personal": of("vqa", 1.0), "global": of("vqa", 0.75)}),
}
LOCAL = {
    "ann": Ending(ARTEFACT, {"personal": of("ground", 0.0, iou=0.1), "unseen.style.personal": of("ground", 0.0625)}),
    "bob": Ending(ARTEFACT, {"personal": of("vqa", 0.5)}),
}


def test_means_by_task_metric_and_kind_of_unseen() -> None:
    results = summarise(RUN, INFOS, {"ann": 6, "bob": 6}, ENDINGS, LOCAL, [], None)
    assert results["mean"] == {"zero_shot": None, "local": 0.25, "global": 0.5, "personal": 0.75}
    assert results["worst"] == {"zero_shot": None, "local": 0.0, "global": 0.25, "personal": 0.5}
    assert results["tasks"] == {
        "ground": {**NOTHING, "local": 0.0, "global": 0.25, "personal": 0.5},
        "vqa": {**NOTHING, "local": 0.5, "global": 0.75, "personal": 1.0},
    }
    assert results["metrics"] == {"ground.iou": {**NOTHING, "local": 0.1, "global": 0.2, "personal": 0.4}}
    style = {**NOTHING, "local": 0.0625, "global": 0.375, "personal": 0.125}
    assert results["unseen"] == {"style": {"mean": style, "worst": style}}
    ann, bob = results["clients"]
    assert (ann["unseen"], bob["unseen"]) == ({"style": style}, {})
    assert ann["metrics"]["local"] == {"ground.iou": 0.1}
    assert bob["tasks"] == {"local": {"vqa": 0.5}, "global": {"vqa": 0.75}, "personal": {"vqa": 1.0}}


def test_rows_not_measured_are_null() -> None:
    results = summarise(RUN, INFOS, {"ann": 6, "bob": 6}, ENDINGS, {}, [], None)
    assert results["unseen"]["style"]["mean"]["local"] is None
    assert results["mean"]["local"] is results["tasks"]["vqa"]["local"] is None


def test_the_table_ends_with_what_is_unseen() -> None:
    results = summarise(RUN, INFOS, {"ann": 6, "bob": 6}, ENDINGS, LOCAL, [], None)
    console = Console(width=100, record=True, quiet=False)
    with console.capture() as shown:
        console.print(table(results))
    lines = shown.get().splitlines()
    assert [word for word in next(line for line in lines if "unseen style" in line).split() if word[0].isdigit()] == [
        *("6.2", "37.5", "12.5")
    ]
