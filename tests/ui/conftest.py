from collections.abc import Iterator
from pathlib import Path

import pytest
from gradio_client import Client

from tests.serve.live import LiveGateway, noise, png
from tests.ui import scripted_gateway
from tests.ui.live import running_page
from tests.ui.scripted_gateway import Scripted


@pytest.fixture(scope="session")
def page(gateway: LiveGateway) -> Iterator[str]:
    """The URL of the page over the session's gateway."""
    with running_page(gateway.url) as url:
        yield url


@pytest.fixture(scope="session")
def scripted() -> Iterator[tuple[str, Scripted]]:
    """The URL of a page over a gateway that does as it is told, and that gateway."""
    with scripted_gateway.running() as gateway, running_page(gateway.url) as url:
        yield url, gateway


@pytest.fixture
def script(scripted: tuple[str, Scripted]) -> Iterator[Scripted]:
    """That gateway, which is as it was when the test ends."""
    _, gateway = scripted
    yield gateway
    fresh = Scripted()
    for name in ("version", "sorting", "piece_s", "dies", "revoked"):
        setattr(gateway, name, getattr(fresh, name))


@pytest.fixture
def visitor(page: str) -> Client:
    """Somebody who opened the page and has not logged in."""
    return Client(page, verbose=False)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """A picture file of random pixels."""
    path = tmp_path / "picture.png"
    path.write_bytes(png(noise(3)))
    return path
